/* SPDX-License-Identifier: Apache-2.0 */
/* The Python half of the torch backend as its C++ half sees it, and the interpreter's lock. */
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

/* Lets go of the interpreter's lock where the thread holds it: torch calls with it and without. */
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

/* By collective, the sizes at which the network carries it: from and to, both with them. */
using Carried = std::map<std::string, std::vector<std::pair<int64_t, int64_t>>>;

/*
 * Sums of workloads/backend.py. Its methods are never let go of: they last as long as the process, and whoever
 * lets go of a work need not hold the interpreter's lock.
 */
class Script {
  public:
	explicit Script(const py::object &sums)
	    : start_(method(sums, "start")), before_(method(sums, "before_sum")),
	      carried_(sums.attr("carried").cast<Carried>()),
	      sums_in_lanes_(sums.attr("sums_in_lanes").cast<bool>()), shutdown_(method(sums, "shutdown"))
	{
	}

	/* It is an error where no result comes within the limit. */
	template <typename Work>
	void start(const Work &work, const Tensors &tensors, bool average, double limit_s) const
	{
		called(start_, work, tensors, average, limit_s);
	}

	/* A sum is about to be asked for without Python. */
	void before_sum() const
	{
		if (before_ != Py_None)
			called(before_);
	}

	/* Whether the network carries a collective of so many bytes on the side of all workers. */
	bool carries(const char *collective, int64_t size_bytes) const
	{
		auto sizes = carried_.find(collective);

		return sizes != carried_.end() &&
		       std::any_of(sizes->second.begin(), sizes->second.end(), [&](const auto &span) {
			       return span.first <= size_bytes && size_bytes <= span.second;
		       });
	}

	/* Whether a sum takes a lane for each element, whatever its type. */
	bool sums_in_lanes() const { return sums_in_lanes_; }

	void shutdown() const { called(shutdown_); }

  private:
	static PyObject *method(const py::object &sums, const char *name)
	{
		return py::object(sums.attr(name)).release().ptr();
	}

	/*
	 * An error of Python's stays what it is: pybind11 takes the interpreter's lock where one is let go of.
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
