/* SPDX-License-Identifier: Apache-2.0 */
/* When a worker's sums ran, for its statistics. */
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <tuple>
#include <vector>

#include "calls_contract.hpp"

namespace inc {

namespace py = pybind11;

/*
 * The time spans of a worker's sums, in seconds since the first one: the first ROWS_MOST of them. Later ones
 * are only counted, because the daemon must read the statistics.
 */
class Spans {
  public:
	explicit Spans(size_t most = ROWS_MOST) : most_(most) {}

	void add(double start, double end, int64_t size_bytes)
	{
		std::lock_guard<std::mutex> lock(mutex_);

		count_++;
		bytes_ += size_bytes;
		if (spans_.size() < most_)
			spans_.push_back({start, end, size_bytes});
		else /* spans are added in the order in which they end */
			later_s_ += std::max(0.0, end - std::max(start, until_));
		until_ = std::max(until_, end);
	}

	/* The number of sums, their bytes, the time in which at least one ran, and the spans. */
	py::dict summary() const
	{
		double busy_s = 0, until = -std::numeric_limits<double>::infinity(), zero;
		std::unique_lock<std::mutex> lock(mutex_);
		auto spans = spans_;
		auto count = count_, bytes = bytes_;
		auto later_s = later_s_;
		py::list rows;
		py::dict summary;

		lock.unlock();
		std::sort(spans.begin(), spans.end(), [](const Span &a, const Span &b) {
			return std::tie(a.start, a.end, a.bytes) < std::tie(b.start, b.end, b.bytes);
		});
		zero = spans.empty() ? 0 : spans[0].start;
		for (const auto &[start, end, size_bytes] : spans) {
			busy_s += std::max(0.0, end - std::max(start, until));
			until = std::max(until, end);
			rows.append(py::list(py::make_tuple(rounded(start - zero), rounded(end - zero),
							    size_bytes)));
		}
		summary["count"] = count;
		summary["bytes"] = bytes;
		summary["busy_s"] = busy_s + later_s;
		summary["spans"] = rows;
		return summary;
	}

  private:
	struct Span {
		double start, end;
		int64_t bytes;
	};

	static double rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

	size_t most_;
	mutable std::mutex mutex_;
	std::vector<Span> spans_;
	int64_t count_ = 0, bytes_ = 0;
	double later_s_ = 0, until_ = -std::numeric_limits<double>::infinity();
};

} // namespace inc
