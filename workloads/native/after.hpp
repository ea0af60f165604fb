/* SPDX-License-Identifier: Apache-2.0 */
/* Works made of other works: AfterWork runs a function after one, TogetherWork combines several. */
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ATen/core/ivalue.h>
#include <c10/core/InferenceMode.h>

#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "script.hpp"

namespace inc {

using c10d::OpType;
using c10d::Work;
using WorkPtr = c10::intrusive_ptr<Work>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
using After = std::function<void()>;

/*
 * A work, and a function that moves its result to its destination. `after` runs once, on the thread that
 * completes the work, before any waiting thread continues. The script sees `result`: the work itself may have
 * other tensors.
 */
class AfterWork : public Work {
  public:
	AfterWork(int rank, WorkPtr work, Tensors result, After after)
	    : AfterWork(rank, std::move(work), std::vector<Tensors>{std::move(result)}, std::move(after))
	{
	}

	/* With several lists the future's value is a list of lists, like gloo's. */
	AfterWork(int rank, WorkPtr work, const std::vector<Tensors> &results, After after)
	    : Work(rank, work->retrieveOpType()), work_(std::move(work))
	{
		bool is_one = results.size() < 2;
		c10::TypePtr type = c10::ListType::create(c10::TensorType::get());

		for (const auto &each : results)
			result_.insert(result_.end(), each.begin(), each.end());
		/* captures the result, not this work: the future may outlive it */
		future_ = work_->getFuture()->then(
			[result = is_one ? c10::IValue(result_) : c10::IValue(results),
			 after = std::move(after)](c10::ivalue::Future &done) {
				c10::InferenceMode all_tensors; /* to write tensors made in inference mode */

				if (done.hasError())
					std::rethrow_exception(done.exception_ptr());
				after();
				return result;
			},
			is_one ? type : c10::ListType::create(type));
	}

	bool isCompleted() override { return future_->completed(); }
	bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
	std::exception_ptr exception() const override { return future_->exception_ptr(); }
	int sourceRank() const override { return work_->sourceRank(); }
	Tensors result() override { return result_; }
	void synchronize() override { work_->synchronize(); }
	void blockCurrentStream() override { work_->blockCurrentStream(); }
	void abort() override { work_->abort(); }
	FuturePtr getFuture() override { return future_; }
	FuturePtr getFutureResult() override { return work_->getFutureResult(); }
	float getDuration() const override { return work_->getDuration(); }
	uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }

	bool wait(std::chrono::milliseconds timeout = kNoTimeout) override
	{
		Unlocked unlocked;
		bool done = work_->wait(timeout);

		future_->wait();
		if (future_->hasError())
			std::rethrow_exception(future_->exception_ptr());
		return done;
	}

  private:
	WorkPtr work_;
	Tensors result_;
	FuturePtr future_;
};

/* Several works that are awaited as one. */
class TogetherWork : public Work {
  public:
	TogetherWork(int rank, std::vector<WorkPtr> works, OpType type = OpType::COALESCED)
	    : Work(rank, type), works_(std::move(works))
	{
		c10::List<FuturePtr> futures(
			c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));

		for (const auto &work : works_)
			futures.push_back(work->getFuture());
		future_ = c10::collectAll(futures)->then(
			[](c10::ivalue::Future &all) {
				Tensors tensors;

				if (all.hasError())
					std::rethrow_exception(all.exception_ptr());
				for (const c10::IValue &each : all.constValue().toList()) {
					const auto &done = *each.toFuture();

					if (done.hasError())
						std::rethrow_exception(done.exception_ptr());
					append(tensors, done.constValue());
				}
				return c10::IValue(tensors);
			},
			c10::ListType::create(c10::TensorType::get()));
	}

	bool isCompleted() override { return future_->completed(); }
	bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
	std::exception_ptr exception() const override { return future_->exception_ptr(); }
	Tensors result() override { return future_->value().toTensorVector(); }
	FuturePtr getFuture() override { return future_; }

	/* Waits for all, even if one fails, so that none stays under way. */
	bool wait(std::chrono::milliseconds timeout = kNoTimeout) override
	{
		Unlocked unlocked;
		std::exception_ptr error;
		bool done = true;

		for (const auto &work : works_)
			try {
				done = work->wait(timeout) && done;
			} catch (...) {
				error = error ? error : std::current_exception();
			}
		if (error)
			std::rethrow_exception(error);
		return done;
	}

  private:
	static void append(Tensors &tensors, const c10::IValue &value)
	{
		if (value.isTensor())
			tensors.push_back(value.toTensor());
		else if (value.isList())
			for (const c10::IValue &each : value.toList())
				append(tensors, each);
	}

	std::vector<WorkPtr> works_;
	FuturePtr future_;
};

/* The works that a script has begun since it started to coalesce, if it has. */
class Coalesced {
  public:
	void start()
	{
		std::lock_guard<std::mutex> lock(mutex_);

		works_.emplace();
	}

	WorkPtr kept(WorkPtr work)
	{
		std::lock_guard<std::mutex> lock(mutex_);

		if (works_)
			works_->push_back(work);
		return work;
	}

	std::vector<WorkPtr> end()
	{
		std::lock_guard<std::mutex> lock(mutex_);

		return works_ ? *std::exchange(works_, std::nullopt) : std::vector<WorkPtr>();
	}

  private:
	std::mutex mutex_;
	std::optional<std::vector<WorkPtr>> works_;
};

} // namespace inc
