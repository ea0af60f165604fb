/* SPDX-License-Identifier: Apache-2.0 */
/* The works that torch waits for: sums, and gloo's collectives that are recorded. */
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ATen/ThreadLocalState.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include "calls.hpp"
#include "completions.hpp"
#include "heard.hpp"
#include "script.hpp"

namespace inc {

using c10d::OpType;
using c10d::Work;
using WorkPtr = c10::intrusive_ptr<Work>;

/*
 * A sum under way, or another collective that the network carries; `tensors` are its result. Python holds a
 * reference until it calls `done` or `fail`. If no one has taken the future, it has no callbacks and is
 * completed at once; otherwise another thread completes it, because callbacks may wait for a later sum.
 */
class SumWork : public Work {
  public:
	SumWork(int rank, OpType type, const char *title, Tensors tensors, Watched watched)
	    : Work(rank, type, title, tensors),
	      future_(c10::make_intrusive<c10::ivalue::Future>(
		      c10::ListType::create(c10::TensorType::get()))),
	      tensors_(std::move(tensors)), watched_(std::move(watched))
	{
	}

	/* Adds the contributors of one tensor's sum. */
	void add(HeardPtr heard)
	{
		std::lock_guard<std::mutex> lock(giving_);

		heard_.push_back(std::move(heard));
	}

	std::vector<HeardPtr> heard()
	{
		std::lock_guard<std::mutex> lock(giving_);

		return heard_;
	}

	void done()
	{
		watched_.is_there();
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

		watched_.wait(timeout, [this](std::chrono::milliseconds slice) {
			{
				std::unique_lock<std::mutex> lock(mutex_);

				if (!cv_.wait_for(lock, slice, [this] { return completed_; }))
					return false;
			}
			future_->wait(); /* when a wait ends, the future is complete, too */
			if (future_->hasError())
				std::rethrow_exception(future_->exception_ptr());
			return true;
		});
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
	bool is_given_ = false; /* whether the future was given out: it may have callbacks */
	c10::intrusive_ptr<c10::ivalue::Future> future_;
	Tensors tensors_;
	Watched watched_;
	std::vector<HeardPtr> heard_; /* by tensor */
};

/* A collective's name in a profile, the same as when the network carries it; null: torch gives it no name. */
inline const char *title_of(OpType type)
{
	switch (type) {
	case OpType::BROADCAST:
		return "inc:broadcast";
	case OpType::ALLREDUCE:
	case OpType::ALLREDUCE_COALESCED:
		return "inc:all_reduce";
	case OpType::_ALLREDUCE_SPARSE:
		return "inc:sparse_all_reduce";
	case OpType::REDUCE:
		return "inc:reduce";
	case OpType::ALLGATHER:
	case OpType::ALLGATHER_COALESCED:
		return "inc:all_gather";
	case OpType::_ALLGATHER_BASE:
		return "inc:_all_gather_base";
	case OpType::GATHER:
		return "inc:gather";
	case OpType::SCATTER:
		return "inc:scatter";
	case OpType::REDUCE_SCATTER:
		return "inc:reduce_scatter";
	case OpType::_REDUCE_SCATTER_BASE:
		return "inc:_reduce_scatter_base";
	case OpType::ALLTOALL:
	case OpType::ALLTOALL_BASE:
		return "inc:all_to_all";
	case OpType::BARRIER:
		return "inc:barrier";
	default:
		return nullptr;
	}
}

/*
 * Shows a collective of gloo to profilers by this backend's name, too, from now until its end: scripts look
 * for events by their backend's name. Gloo's own event next to it shows who carried it.
 */
inline void record(const WorkPtr &work)
{
	const char *title = title_of(work->retrieveOpType());

	if (!title)
		return;
	auto event = std::make_shared<at::RecordFunction>(at::RecordScope::USER_SCOPE);

	if (!event->isActive())
		return;
	event->_setAsync();
	event->before(title);
	work->getFuture()->addCallback(
		[end = at::wrapPropagateTLSState([event] { event->end(); })](c10::ivalue::Future &) { end(); });
}

/* A collective of gloo, with its waits recorded in the timeline. */
class SeenWork : public Work {
  public:
	SeenWork(int rank, WorkPtr work, Watched watched)
	    : Work(rank, work->retrieveOpType()), work_(std::move(work)), watched_(std::move(watched))
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
		bool is_done = false;

		watched_.wait(timeout, [&](std::chrono::milliseconds slice) {
			try {
				is_done = work_->wait(slice);
			} catch (const std::exception &) {
				if (!work_->isCompleted())
					return false;
				is_done = work_->wait(); /* or this throws its error */
			}
			watched_.is_there();
			return true;
		});
		return is_done;
	}

  private:
	WorkPtr work_;
	Watched watched_;
};

} // namespace inc
