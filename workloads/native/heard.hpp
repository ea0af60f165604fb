/* SPDX-License-Identifier: Apache-2.0 */
/* The contributors of a worker's sums. */
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <pybind11/numpy.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace inc {

namespace py = pybind11;

/* The number of contributors of a vector's sum, by fragment, as in Outcome (workloads/outcome.py). */
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

/* Counts a worker's sums, and those that lack workers. */
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

	/* Sums in which some fragment lacks workers. */
	uint64_t degraded() const { return read([this] { return degraded_; }); }

	/* The smallest number of contributors of such a fragment. */
	std::optional<uint32_t> fewest() const { return read([this] { return fewest_; }); }

	/* The outcome of the last sum; None before the first. */
	py::object last() const
	{
		auto last = read([this] { return last_; });

		return last ? last->outcome() : py::none();
	}

	/* The counts, for a job's statistics. */
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

} // namespace inc
