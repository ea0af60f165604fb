/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's timeline, for its statistics (testbed/telemetry/timelines.py reads it). */
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "calls_contract.hpp"

namespace inc {

namespace py = pybind11;

inline int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC)
{
	timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

/*
 * How long the calling thread was ready to run and had no core, by the kernel's count; 0 where the kernel
 * does not provide it. A thread's file is closed when the thread ends.
 */
class Starvation {
  public:
	static int64_t ns()
	{
		static thread_local Starvation its;
		char text[96];
		ssize_t length = its.file_ < 0 ? -1 : pread(its.file_, text, sizeof text - 1, 0);

		if (length <= 0)
			return 0;
		text[length] = 0;
		const char *second = strchr(text, ' ');

		return second ? strtoll(second, nullptr, 10) : 0;
	}

	~Starvation()
	{
		if (file_ >= 0)
			close(file_);
	}

  private:
	Starvation() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

	int file_;
};

/*
 * When a script asked for a collective, when it began to wait for it, and when the result arrived. Between
 * waits the script computes. The daemon replays the timeline on links with their declared rates
 * (testbed/telemetry/replay.py), to find what the links alone would allow. The script's threads add rows, in
 * order; the thread that has a result calls `is_there`. A row costs some two microseconds, most of it to read
 * the thread's starvation.
 */
class Timeline {
  public:
	explicit Timeline(size_t most_rows) : most_rows_(most_rows) {}

	/* Records a request for a collective, and returns its number. `kind` is one of COURSE_*. */
	int64_t ask(int64_t size_bytes, int64_t kind)
	{
		std::lock_guard<std::mutex> lock(mutex_);
		auto number = (int64_t)collectives_.size();

		if (rows_.size() < most_rows_) {
			collectives_.push_back({size_bytes, kind, 0});
			row(ROW_ASKED, number);
		}
		return number;
	}

	/*
	 * Records that a collective occupies a resource other than links for `seconds`, by its declared rate.
	 * `behind`: the collective is complete before that time is over, but the next call is not.
	 */
	void use(int64_t number, const std::string &resource, double seconds, bool behind)
	{
		std::lock_guard<std::mutex> lock(mutex_);

		if (uses_.size() < most_rows_ && number < (int64_t)collectives_.size())
			uses_.push_back({number, resource, (int64_t)(seconds * 1e9 + 0.5), behind});
	}

	/* Records that a collective's result has arrived. */
	void is_there(int64_t number)
	{
		std::lock_guard<std::mutex> lock(mutex_);

		if (number < (int64_t)collectives_.size())
			collectives_[number].ready_ns = now_ns();
	}

	/* Records that the script waits for this collective and all before it. */
	void wait(int64_t number) { locked_row(ROW_WAITED, number); }

	/* Records that the script continues. */
	void resume(int64_t number) { locked_row(ROW_RESUMED, number); }

	/* The number of the latest collective; -1: there is none. */
	int64_t last() const
	{
		std::lock_guard<std::mutex> lock(mutex_);

		return (int64_t)collectives_.size() - 1;
	}

	/*
	 * The timeline for JSON; times are nanoseconds of CLOCK_MONOTONIC. `sums`: bytes, kind, and when the
	 * result arrived (0: never). `rows`: what, number, when, and for how long since its previous row the
	 * thread waited for a core, and had one. `uses`, if there are any: number, resource, how long, and
	 * whether `behind`.
	 */
	py::dict summary() const
	{
		std::lock_guard<std::mutex> lock(mutex_);
		py::list sums, rows, uses;
		py::dict summary;

		for (const auto &each : collectives_)
			sums.append(py::list(py::make_tuple(each.size_bytes, each.kind, each.ready_ns)));
		for (const auto &each : rows_)
			rows.append(py::list(py::make_tuple(each.what, each.number, each.at_ns,
							    each.starved_ns, each.ran_ns)));
		for (const auto &each : uses_)
			uses.append(py::list(py::make_tuple(each.number, each.resource, each.busy_ns,
							    (int)each.behind)));
		summary["sums"] = sums;
		summary["rows"] = rows;
		if (!uses_.empty())
			summary["uses"] = uses;
		return summary;
	}

  private:
	struct Collective {
		int64_t size_bytes, kind, ready_ns;
	};
	struct Row {
		int64_t what, number, at_ns, starved_ns, ran_ns;
	};
	struct Use {
		int64_t number;
		std::string resource;
		int64_t busy_ns;
		bool behind;
	};
	struct Before {
		const Timeline *of;
		int64_t starved_ns, ran_ns;
	};

	void locked_row(int64_t what, int64_t number)
	{
		std::lock_guard<std::mutex> lock(mutex_);

		row(what, number);
	}

	void row(int64_t what, int64_t number)
	{
		static thread_local Before before{nullptr, 0, 0};

		if (rows_.size() >= most_rows_)
			return;
		Before now{this, Starvation::ns(), now_ns(CLOCK_THREAD_CPUTIME_ID)};

		if (before.of != this)
			before = now;
		rows_.push_back({what, number, now_ns(), now.starved_ns - before.starved_ns,
				 now.ran_ns - before.ran_ns});
		before = now;
	}

	size_t most_rows_;
	mutable std::mutex mutex_;
	std::vector<Collective> collectives_;
	std::vector<Row> rows_;
	std::vector<Use> uses_;
};

} // namespace inc
