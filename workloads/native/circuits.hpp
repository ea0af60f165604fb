/* SPDX-License-Identifier: Apache-2.0 */
/* Circuits for calls: a Python function is told of each call before it starts, and a pipe of its end. */
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ATen/core/ivalue.h>

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "script.hpp"

namespace inc {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

constexpr int64_t CALL_SEND = 254, CALL_RECEIVE = 255; /* beside the numbers of collectives */

/*
 * Asks for the circuits of a group's calls (workloads/call_circuits.py). Ends are written to a pipe, because
 * they occur on gloo's threads, which must not wait for the interpreter's lock.
 */
class CallCircuits {
  public:
	/* `before`: a function of kind, size in bytes and peer (-1: none) that returns a number for `end`. */
	CallCircuits(const py::object &before, int fd) : before_(py::object(before).release().ptr()), fd_(fd) {}

	/* Waits for the circuits of a call, and returns its number. */
	uint64_t begin(int64_t kind, int64_t size_bytes, int64_t peer = -1) const
	{
		Unlocked unlocked; /* so that the lock is not held twice */
		py::gil_scoped_acquire locked;

		try {
			return py::reinterpret_borrow<py::object>(before_)(kind, size_bytes, peer).cast<uint64_t>();
		} catch (py::error_already_set &error) {
			throw std::runtime_error(error.what());
		}
	}

	void end(uint64_t number) const
	{
		if (write(fd_, &number, sizeof(number)) < 0)
			return; /* the worker ends */
	}

  private:
	PyObject *before_; /* never released, as the methods of Script */
	int fd_;
};

using CallCircuitsPtr = std::shared_ptr<CallCircuits>;

/* A send or receive, whose end is reported when the script has waited for it, or has dropped it. */
class PairWork : public c10d::Work {
  public:
	PairWork(int rank, WorkPtr work, CallCircuitsPtr circuits, uint64_t number)
	    : Work(rank, work->retrieveOpType()), work_(std::move(work)), circuits_(std::move(circuits)),
	      number_(number)
	{
	}

	~PairWork() override { end(); }

	bool isCompleted() override
	{
		bool is_completed = work_->isCompleted();

		if (is_completed)
			end();
		return is_completed;
	}

	bool isSuccess() const override { return work_->isSuccess(); }
	std::exception_ptr exception() const override { return work_->exception(); }
	int sourceRank() const override { return work_->sourceRank(); }
	void abort() override { work_->abort(); }
	uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }
	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return work_->getFuture(); }

	bool wait(std::chrono::milliseconds timeout = kNoTimeout) override
	{
		bool is_done = work_->wait(timeout);

		end();
		return is_done;
	}

  private:
	void end()
	{
		if (!is_ended_.exchange(true))
			circuits_->end(number_);
	}

	WorkPtr work_;
	CallCircuitsPtr circuits_;
	uint64_t number_;
	std::atomic<bool> is_ended_{false};
};

} // namespace inc
