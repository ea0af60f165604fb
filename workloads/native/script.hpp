/* SPDX-License-Identifier: Apache-2.0 */
/* The C++ half's access to the Python half of the torch backend, and to the interpreter's lock. */
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace inc {

namespace py = pybind11;
using Tensors = std::vector<at::Tensor>;

/* Releases the interpreter's lock if the thread holds it: torch calls with and without the lock. */
class Unlocked {
  public:
	Unlocked()
	{
		if (Py_IsInitialized() && PyGILState_Check())
			release_.emplace();
	}

  private:
	std::optional<py::gil_scoped_release> release_;
};

/* By collective, the ranges of sizes in bytes that the network carries: first and last, both included. */
using Carried = std::map<std::string, std::vector<std::pair<int64_t, int64_t>>>;

/*
 * The methods of a Sums of workloads/sums.py. Their references are never released: they last as long as the
 * process, so that a work can be destroyed without the interpreter's lock.
 */
class Script {
  public:
	explicit Script(const py::object &sums)
	    : start_(method(sums, "start")), before_(method(sums, "before_sum")),
	      carried_(sums.attr("carried").cast<Carried>()),
	      sums_in_lanes_(sums.attr("sums_in_lanes").cast<bool>()), shutdown_(method(sums, "shutdown"))
	{
	}

	/* Starts a sum. It fails if no result comes within the limit. */
	template <typename Work>
	void start(const Work &work, const Tensors &tensors, bool average, double limit_s) const
	{
		called(start_, work, tensors, average, limit_s);
	}

	/* Called before each sum that does not go through Python. */
	void before_sum() const
	{
		if (before_ != Py_None)
			called(before_);
	}

	/*
	 * Whether the network carries a collective of this size: the bytes on the side that has the values of
	 * all workers.
	 */
	bool carries(const char *collective, int64_t size_bytes) const
	{
		auto sizes = carried_.find(collective);

		return sizes != carried_.end() &&
		       std::any_of(sizes->second.begin(), sizes->second.end(), [&](const auto &span) {
			       return span.first <= size_bytes && size_bytes <= span.second;
		       });
	}

	/* Whether a sum uses one lane per element, whatever the element's type. */
	bool sums_in_lanes() const { return sums_in_lanes_; }

	void shutdown() const { called(shutdown_); }

  private:
	static PyObject *method(const py::object &sums, const char *name)
	{
		return py::object(sums.attr(name)).release().ptr();
	}

	/*
	 * Calls a method. A Python error is thrown unchanged: pybind11 takes the interpreter's lock when it
	 * is destroyed.
	 */
	template <typename... Arguments> static void called(PyObject *method, Arguments &&...arguments)
	{
		py::gil_scoped_acquire locked;

		py::reinterpret_borrow<py::object>(method)(std::forward<Arguments>(arguments)...);
	}

	PyObject *start_, *before_;
	Carried carried_;
	bool sums_in_lanes_;
	PyObject *shutdown_;
};

using ScriptPtr = std::shared_ptr<const Script>;

} // namespace inc
