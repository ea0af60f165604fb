/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a group's workers, in memory that all workers of the job share (testbed/wire/calls.py). */
#pragma once

#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "script.hpp"
#include "timeline.hpp"

namespace inc {

/* A script's call: the collective and its size. */
struct Asked {
	uint64_t what, elements; /* as in struct call */
};

/*
 * Checks that all workers of a group ask for the same collectives in the same order. Each call is written to
 * the shared tables, and compared with the calls of the same number of this worker's two neighbours: if any
 * workers differ, some neighbours differ. The later of the two callers notices it; waiting workers learn of
 * it by `check`. It ends the group: every later call throws the same error.
 *
 * A neighbour that is CALL_ENTRIES calls ahead is not compared any more.
 */
class Order {
  public:
	/*
	 * `ranks`: the workers' numbers in the job. `why`: a function of group and number that describes in
	 * words who asked for what.
	 */
	Order(uint64_t tables, std::vector<int> ranks, int member, uint64_t group, const py::object &why)
	    : ranks_(std::move(ranks)), tables_(reinterpret_cast<call_table *>(tables)), group_(group),
	      mine_(table(member)), before_(table(member + (int)ranks_.size() - 1)), after_(table(member + 1)),
	      why_(py::object(why).release().ptr())
	{
	}

	/* Throws if the workers were found to differ. */
	void require_same()
	{
		if (is_broken_)
			throw std::runtime_error(broken_by());
	}

	/*
	 * Records a call, and returns its number. Throws if another worker's call is known to differ, now or
	 * before.
	 */
	uint64_t ask(Asked asked)
	{
		require_same();
		uint64_t number = asked_.fetch_add(1) + 1;
		call &its = at(mine_, number);

		word(its.number).store(0);
		word(its.group).store(group_, std::memory_order_relaxed);
		word(its.what).store(asked.what, std::memory_order_relaxed);
		word(its.elements).store(asked.elements, std::memory_order_relaxed);
		word(its.asked_ns).store(now_ns(), std::memory_order_relaxed);
		word(its.number).store(number);
		word(mine_->last).store(place(number) + 1, std::memory_order_relaxed);
		if (differs(before_, number, asked) || differs(after_, number, asked))
			doubt(number);
		else if (uint64_t theirs = doubted(before_) ?: doubted(after_))
			doubt(theirs);
		return number;
	}

	void waits(uint64_t number)
	{
		word(mine_->waits_ns).store(now_ns(), std::memory_order_relaxed);
		word(mine_->waits).store(place(number) + 1);
	}

	void resumes() { word(mine_->waits).store(0); }

	/* Throws if any of the group's workers has found a difference. */
	void check()
	{
		require_same();
		for (size_t member = 0; member < ranks_.size(); member++)
			if (uint64_t number = doubted(table((int)member)))
				doubt(number);
	}

	/* Whether the group has ended so: works are under way that no one will complete. */
	bool is_broken() const { return is_broken_; }

	std::string broken_by()
	{
		std::lock_guard<std::mutex> lock(mutex_);

		return text_;
	}

  private:
	static std::atomic_ref<uint64_t> word(__u64 &word)
	{
		return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t &>(word));
	}

	call_table *table(int member) const { return &tables_[ranks_[member % ranks_.size()]]; }

	uint64_t place(uint64_t number) const { return (group_ + number) % CALL_ENTRIES; }

	call &at(call_table *table, uint64_t number) const
	{
		return reinterpret_cast<call *>(table->calls)[place(number)];
	}

	bool differs(call_table *theirs, uint64_t number, Asked asked) const
	{
		call &its = at(theirs, number);

		if (word(its.number).load() != number || word(its.group).load() != group_)
			return false;
		Asked seen{word(its.what).load(), word(its.elements).load()};

		return word(its.number).load() == number &&
		       (seen.what != asked.what || seen.elements != asked.elements);
	}

	/* The number of the call in which a worker found a difference; 0: none in this group. */
	uint64_t doubted(call_table *theirs) const
	{
		uint64_t number = word(theirs->doubt_number).load();

		return number && word(theirs->doubt_group).load() == group_ ? number : 0;
	}

	[[noreturn]] void doubt(uint64_t number)
	{
		if (!doubted(mine_)) {
			word(mine_->doubt_group).store(group_);
			word(mine_->doubt_number).store(number);
		}
		std::string text = "DisagreementError: " + said(number);

		{
			std::lock_guard<std::mutex> lock(mutex_);

			if (text_.empty())
				text_ = text;
		}
		is_broken_ = true;
		throw std::runtime_error(broken_by());
	}

	std::string said(uint64_t number) const
	{
		Unlocked unlocked; /* so that the lock is not held twice */
		py::gil_scoped_acquire locked;

		try {
			return py::reinterpret_borrow<py::object>(why_)(group_, number).cast<std::string>();
		} catch (py::error_already_set &error) {
			return "the workers do not ask for the same (" + std::string(error.what()) + ")";
		}
	}

	std::vector<int> ranks_;
	call_table *tables_;
	uint64_t group_;
	call_table *mine_, *before_, *after_;
	PyObject *why_; /* never released, as the methods of Script */
	std::atomic<uint64_t> asked_{0};
	std::atomic<bool> is_broken_{false};
	std::mutex mutex_;
	std::string text_;
};

using OrderPtr = std::shared_ptr<Order>;

/*
 * A script's progress through the collectives of a group that sums: recorded on the job board, for workers
 * that are held up, and in the timeline, if there is one.
 */
class Course {
  public:
	/* Addresses of two words of this worker's record on the board: calls so far, and the awaited call. */
	Course(uint64_t asked, uint64_t waits_for, std::shared_ptr<Timeline> timeline)
	    : asked_(reinterpret_cast<uint64_t *>(asked)), waits_for_(reinterpret_cast<uint64_t *>(waits_for)),
	      timeline_(std::move(timeline))
	{
	}

	/* Stops writing to the board, which is unmapped next. */
	void leave_board() { asked_ = waits_for_ = &nowhere_; }

	/* Records a call, and returns its number in the timeline. `kind` is one of COURSE_*. */
	int64_t ask(int64_t size_bytes, int64_t kind)
	{
		word(waits_for_).store(0); /* after a wait that failed */
		word(asked_).fetch_add(1);
		return timeline_ ? timeline_->ask(size_bytes, kind) : 0;
	}

	/* Records that the script waits for this collective. */
	void wait(int64_t number)
	{
		word(waits_for_).store(word(asked_).load());
		if (timeline_)
			timeline_->wait(number);
	}

	void is_there(int64_t number)
	{
		if (timeline_)
			timeline_->is_there(number);
	}

	/*
	 * Records that the script continues. After an error (`in_vain`) the board shows the wait until the
	 * next call: the launcher derives from it whose fault an end is.
	 */
	void resume(int64_t number, bool in_vain = false)
	{
		if (timeline_)
			timeline_->resume(number);
		if (!in_vain)
			word(waits_for_).store(0);
	}

	int64_t last() const { return timeline_ ? timeline_->last() : 0; }

	/*
	 * Records the wait at the end of a backward pass, where DDP waits without a call. Callbacks run there
	 * in the order in which they were queued. The first of these two runs before DDP's, which is queued
	 * after the last bucket; the second, queued by the first, runs after it.
	 */
	static void see_backward(const std::shared_ptr<Course> &course)
	{
		auto &engine = torch::autograd::Engine::get_default_engine();
		int pass = torch::autograd::get_current_graph_task_id();

		if (pass == -1 || course->backward_.exchange(pass) == pass)
			return;
		engine.queue_callback([course, &engine] {
			course->backward_ = -1;
			course->wait(course->last());
			engine.queue_callback([course] { course->resume(course->last()); });
		});
	}

  private:
	static std::atomic_ref<uint64_t> word(uint64_t *at) { return std::atomic_ref<uint64_t>(*at); }

	std::atomic<uint64_t *> asked_, waits_for_;
	uint64_t nowhere_ = 0;
	std::shared_ptr<Timeline> timeline_;
	std::atomic<int> backward_{-1}; /* the pass for which the callbacks are queued */
};

using CoursePtr = std::shared_ptr<Course>;

/* A collective's numbers in the course and in the order, where it has these. */
class Watched {
  public:
	Watched(CoursePtr course, OrderPtr order, int64_t number, uint64_t call)
	    : course_(std::move(course)), order_(std::move(order)), number_(number), call_(call)
	{
	}

	void is_there() const
	{
		if (course_)
			course_->is_there(number_);
	}

	/*
	 * Calls `waits(time)` again and again until it returns true or throws. In between, checks that all
	 * workers ask for the same. `limit` 0: none.
	 */
	template <typename Waits> void wait(std::chrono::milliseconds limit, Waits waits) const
	{
		using Clock = std::chrono::steady_clock;
		Waiting waiting(*this);
		auto until = Clock::now() + limit;
		std::chrono::milliseconds slice = FIRST;

		for (;; slice = SLICE) {
			auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());

			if (waits(limit.count() ? std::min(slice, std::max(rest, slice.zero())) : slice))
				return;
			if (order_)
				order_->check();
			if (limit.count() && rest.count() <= 0)
				TORCH_CHECK(false, "Operation timed out!");
		}
	}

  private:
	static constexpr std::chrono::milliseconds FIRST{1000}, SLICE{500};

	/* Records a wait for its lifetime. */
	class Waiting {
	  public:
		explicit Waiting(const Watched &watched) : watched_(watched)
		{
			if (watched.course_)
				watched.course_->wait(watched.number_);
			if (watched.order_)
				watched.order_->waits(watched.call_);
		}

		~Waiting()
		{
			if (watched_.order_)
				watched_.order_->resumes();
			if (watched_.course_)
				watched_.course_->resume(watched_.number_, std::uncaught_exceptions() > errors_);
		}

	  private:
		const Watched &watched_;
		int errors_ = std::uncaught_exceptions();
	};

	CoursePtr course_;
	OrderPtr order_;
	int64_t number_;
	uint64_t call_;
};

} // namespace inc
