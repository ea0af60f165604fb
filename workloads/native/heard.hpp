/* SPDX-License-Identifier: Apache-2.0 */
/* Who is in a worker's sums, and how long these took. */
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <pybind11/numpy.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "calls_contract.hpp"

namespace inc {

namespace py = pybind11;

/* The contributors of a vector's sum, as Outcome in workloads/outcome.py, which says what they mean. */
struct Heard {
	uint32_t workers;
	uint64_t lanes;
	std::vector<uint32_t> by_fragment;

	static Heard of(const py::object &outcome)
	{
		using Counts = py::array_t<uint32_t, py::array::c_style | py::array::forcecast>;
		auto counts = outcome.attr("by_fragment").cast<Counts>();

		return {outcome.attr("workers").cast<uint32_t>(), outcome.attr("lanes").cast<uint64_t>(),
			std::vector<uint32_t>(counts.data(), counts.data() + counts.size())};
	}

	static Heard whole(uint32_t workers) { return {workers, 1ULL << 62, {workers}}; }

	py::object outcome() const
	{
		py::array_t<uint32_t> counts((py::ssize_t)by_fragment.size(), by_fragment.data());

		return py::module_::import("workloads.outcome").attr("Outcome")(workers, lanes, counts);
	}

	uint32_t fewest() const { return *std::min_element(by_fragment.begin(), by_fragment.end()); }
};

using HeardPtr = std::shared_ptr<const Heard>;

/* The account of a worker's sums so far. */
class Record {
	template <typename Field> auto read(Field field) const
	{
		std::lock_guard<std::mutex> lock(mutex_);

		return field();
	}

  public:
	void add(HeardPtr heard)
	{
		std::lock_guard<std::mutex> lock(mutex_);

		sums_++;
		if (heard->fewest() < heard->workers) {
			degraded_++;
			fewest_ = std::min(fewest_.value_or(heard->workers), heard->fewest());
		}
		last_ = std::move(heard);
	}

	uint64_t sums() const { return read([this] { return sums_; }); }

	/* Sums of which some fragment lacks workers. */
	uint64_t degraded() const { return read([this] { return degraded_; }); }

	/* Contributors of such a fragment. */
	std::optional<uint32_t> fewest() const { return read([this] { return fewest_; }); }

	/* Who was in the last one; None before the first. */
	py::object last() const
	{
		auto last = read([this] { return last_; });

		return last ? last->outcome() : py::none();
	}

	/* For a job's statistics. */
	py::dict summary() const
	{
		py::dict summary;

		summary["degraded_sums"] = degraded();
		summary["fewest_contributors"] = fewest();
		return summary;
	}

  private:
	mutable std::mutex mutex_;
	uint64_t sums_ = 0, degraded_ = 0;
	std::optional<uint32_t> fewest_;
	HeardPtr last_;
};

/*
 * The spans of time that a worker's sums took, in seconds since the first one: the first ROWS_MOST of them;
 * those after them are only counted, since what a worker leaves is read by the daemon.
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
		else /* they come in the order in which they end */
			later_s_ += std::max(0.0, end - std::max(start, until_));
		until_ = std::max(until_, end);
	}

	/* How many, their bytes, the time in which at least one was running, and the spans. */
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
