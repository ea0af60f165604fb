/* SPDX-License-Identifier: Apache-2.0 */
/* What torch waits for: sums of the script's, and collectives of gloo's that are seen. */
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ATen/core/ivalue.h>

#include "completions.hpp"
#include "script.hpp"

namespace inc {

using c10d::OpType;
using c10d::Work;
using WorkPtr = c10::intrusive_ptr<Work>;

/* Says that the script goes on, however its waiting ends. */
class Resumed {
  public:
	Resumed(const ScriptPtr &script, int64_t number, bool summed)
	    : script_(script), number_(number), summed_(summed)
	{
		script_->wait(number_);
	}

	/* Raises what Python does, which an error under way would hide. */
	void resume()
	{
		is_waiting_ = false;
		script_->resume(number_, summed_);
	}

	~Resumed()
	{
		if (is_waiting_)
			try {
				script_->resume(number_, summed_);
			} catch (const std::exception &) {
			}
	}

  private:
	const ScriptPtr &script_;
	int64_t number_;
	bool summed_, is_waiting_ = true;
};

/*
 * A sum under way, or another collective that the network carries. `tensors` are its result. Python keeps it
 * until it calls `done` or `fail`. A future that nobody was given has no callbacks, and is completed at
 * once; else another thread does, since they may wait for a later sum.
 */
class SumWork : public Work {
  public:
	SumWork(int rank, OpType type, const char *title, Tensors tensors, ScriptPtr script)
	    : Work(rank, type, title, tensors),
	      future_(c10::make_intrusive<c10::ivalue::Future>(
		      c10::ListType::create(c10::TensorType::get()))),
	      tensors_(std::move(tensors)), script_(std::move(script))
	{
	}

	~SumWork() override
	{
		Discarded::all().put(outcomes_);
	}

	void is_numbered(int64_t number) { number_ = number; }

	/* Of Python's, with the interpreter's lock. */
	py::object outcomes() const
	{
		return outcomes_ ? py::reinterpret_borrow<py::object>(outcomes_) : py::list();
	}

	void set_outcomes(py::object outcomes)
	{
		Py_XDECREF(outcomes_);
		outcomes_ = outcomes.release().ptr();
	}

	void done()
	{
		finish();
		complete([future = future_, tensors = tensors_] {
			future->markCompleted(c10::IValue(tensors));
		});
	}

	void fail(const std::string &text)
	{
		auto error = std::make_exception_ptr(std::runtime_error(text));

		finish(error);
		complete([future = future_, error] { future->setError(error); });
	}

	bool isCompleted() override { return future_->completed(); }

	bool wait(std::chrono::milliseconds timeout = kNoTimeout) override
	{
		Unlocked unlocked;

		Resumed waiting(script_, number_, true);

		if (timeout != kNoTimeout)
			Work::wait(timeout);
		future_->wait(); /* and not only the work: its future is there for whoever waited */
		if (future_->hasError())
			std::rethrow_exception(future_->exception_ptr());
		waiting.resume();
		return true;
	}

	Tensors result() override { return tensors_; }

	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
	{
		std::lock_guard<std::mutex> lock(giving_);

		is_given_ = true;
		return future_;
	}

  private:
	void complete(std::function<void()> task)
	{
		std::lock_guard<std::mutex> lock(giving_);

		if (is_given_)
			Completions::all().put(std::move(task));
		else
			task();
	}

	std::mutex giving_;
	bool is_given_ = false; /* the future: it may have callbacks */
	c10::intrusive_ptr<c10::ivalue::Future> future_;
	Tensors tensors_;
	ScriptPtr script_;
	int64_t number_ = -1;
	PyObject *outcomes_ = nullptr;
};

/* A collective of gloo's, whose waiting goes into the timeline. */
class SeenWork : public Work {
  public:
	SeenWork(int rank, WorkPtr work, ScriptPtr script, int64_t number)
	    : Work(rank, work->retrieveOpType()), work_(std::move(work)), script_(std::move(script)),
	      number_(number)
	{
	}

	bool isCompleted() override { return work_->isCompleted(); }
	bool isSuccess() const override { return work_->isSuccess(); }
	std::exception_ptr exception() const override { return work_->exception(); }
	int sourceRank() const override { return work_->sourceRank(); }
	Tensors result() override { return work_->result(); }
	void synchronize() override { work_->synchronize(); }
	void blockCurrentStream() override { work_->blockCurrentStream(); }
	void abort() override { work_->abort(); }
	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return work_->getFuture(); }
	c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override
	{
		return work_->getFutureResult();
	}
	float getDuration() const override { return work_->getDuration(); }
	uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }

	bool wait(std::chrono::milliseconds timeout = kNoTimeout) override
	{
		Unlocked unlocked;
		Resumed waiting(script_, number_, false);
		bool done = work_->wait(timeout);

		waiting.resume();
		return done;
	}

  private:
	WorkPtr work_;
	ScriptPtr script_;
	int64_t number_;
};

} // namespace inc
