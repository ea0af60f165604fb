/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C++ half of the torch backend `inc`: a c10d::Backend that hands sums to workloads/backend.py (Sums) and
 * everything else to a backend of gloo's within it. Compiled against the torch that is installed
 * (workloads/native/build.py); docs/backend.md says why it is not Python.
 *
 * Three rules keep it from hanging. Gloo is never entered by a thread that holds the interpreter's lock. A sum
 * is alive until it has ended, whoever lets go of it. A callback never runs on the thread that sums, so that it
 * may wait for a later sum.
 */
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>

#include "works.hpp"

using namespace c10d;

namespace inc {

using BackendPtr = c10::intrusive_ptr<Backend>;

/* What all groups of this process were asked for that gloo carries: of tensors, not of packets. */
std::atomic<int64_t> by_gloo_bytes{0};

/* The same of one group. */
struct Tally {
	std::atomic<int64_t> size_bytes{0};
};

using TallyPtr = std::shared_ptr<Tally>;

int64_t size_of(const at::Tensor &tensor)
{
	return tensor.defined() && !tensor.is_sparse() ? (int64_t)tensor.nbytes() : 0;
}

template <typename Item> int64_t size_of(const std::vector<Item> &items)
{
	int64_t size_bytes = 0;

	for (const auto &item : items)
		size_bytes += size_of(item);
	return size_bytes;
}

int64_t elements_of(const Tensors &tensors)
{
	int64_t elements = 0;

	for (const auto &tensor : tensors)
		elements += tensor.defined() && !tensor.is_sparse() ? tensor.numel() : 0;
	return elements;
}

/* What all workers must ask for alike: the type is that of the first of `tensors`. */
Asked asked(uint64_t kind, const Tensors &tensors = {}, int64_t elements = 0)
{
	uint64_t type = tensors.empty() || !tensors[0].defined() ? 0 : (uint64_t)tensors[0].scalar_type() + 1;

	return {kind | type << CALL_TYPE_SHIFT, (uint64_t)elements};
}

Asked reduced(Asked asked, const ReduceOp &operation)
{
	asked.what |= ((uint64_t)(ReduceOp::RedOpType)operation + 1) << CALL_OPERATION_SHIFT;
	return asked;
}

Asked rooted(Asked asked, int64_t root)
{
	asked.what |= (uint64_t)(root + 1) << CALL_ROOT_SHIFT;
	return asked;
}

/* Whether packets may carry its values as they are. */
bool is_plain(const at::Tensor &tensor)
{
	return tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
	       !tensor.is_quantized();
}

/* Whether the job's reducer sums these so. */
bool is_summed(const Tensors &tensors, const ReduceOp &operation)
{
	if (tensors.empty() || !(operation == ReduceOp::SUM || operation == ReduceOp::AVG))
		return false;
	for (const auto &tensor : tensors) {
		if (!is_plain(tensor))
			return false;
		auto type = tensor.scalar_type();

		if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16)
			return false;
	}
	return true;
}

/*
 * The side of a collective where each vector has the parts of all workers: `parts`, one of each, or one of all
 * in one piece. Gloo says what is wrong where they are not.
 */
bool are_parts(const Tensors &parts, const at::Tensor &part, int workers)
{
	int64_t count = 0;

	if (!is_plain(part) || (parts.size() != 1 && parts.size() != (size_t)workers))
		return false;
	for (const auto &each : parts) {
		if (!is_plain(each) || each.scalar_type() != part.scalar_type() ||
		    (parts.size() > 1 && each.numel() != part.numel()))
			return false;
		count += each.numel();
	}
	return count == workers * part.numel();
}

bool are_all_parts(const std::vector<Tensors> &wholes, const Tensors &parts, int workers)
{
	if (wholes.empty() || wholes.size() != parts.size())
		return false;
	for (size_t i = 0; i < parts.size(); i++)
		if (!are_parts(wholes[i], parts[i], workers))
			return false;
	return true;
}

std::vector<Tensors> each_alone(const Tensors &tensors)
{
	std::vector<Tensors> lists;

	for (const auto &tensor : tensors)
		lists.push_back({tensor});
	return lists;
}

/*
 * Sums and averages of floats go to the script's reducer, where there is one; so do gathering, broadcasting
 * and scattering, where that carries them and they are large enough. Each other method that gloo has is
 * gloo's; tests/unit/test_backend_methods.py compares them with torch's own list.
 */
class IncBackend : public Backend {
  public:
	IncBackend(BackendPtr gloo, const py::object &sums, TallyPtr tally, OrderPtr order)
	    : IncBackend(std::move(gloo), std::make_shared<const Script>(sums), std::move(tally),
			 sums.attr("course").cast<CoursePtr>(), std::move(order))
	{
	}

	IncBackend(BackendPtr gloo, ScriptPtr script, TallyPtr tally, CoursePtr course, OrderPtr order)
	    : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)), script_(std::move(script)),
	      tally_(std::move(tally)), course_(std::move(course)), order_(std::move(order))
	{
	}

	~IncBackend() override
	{
		Unlocked unlocked; /* gloo waits for its threads, which may wait for the interpreter */

		if (order_ && order_->is_broken())
			gloo_.release(); /* they wait for what others do not ask for, until their timeout */
		gloo_.reset();
	}

	const std::string getBackendName() const override { return "inc"; }

	WorkPtr allreduce(Tensors &tensors, const AllreduceOptions &options) override
	{
		auto what = reduced(asked(CALL_ALL_REDUCE, tensors, elements_of(tensors)), options.reduceOp);

		if (script_ && is_summed(tensors, options.reduceOp))
			return sum(what, tensors, options.reduceOp == ReduceOp::AVG);
		return seen(what, tensors, [&] { return gloo_->allreduce(tensors, options); });
	}

	WorkPtr allreduce_coalesced(Tensors &tensors, const AllreduceCoalescedOptions &options) override
	{
		auto what = reduced(asked(CALL_ALL_REDUCE, tensors, elements_of(tensors)), options.reduceOp);

		if (script_ && is_summed(tensors, options.reduceOp))
			return sum(what, tensors, options.reduceOp == ReduceOp::AVG);
		return seen(what, tensors, [&] { return gloo_->allreduce_coalesced(tensors, options); });
	}

	WorkPtr allreduce_sparse(Tensors &tensors, const AllreduceOptions &options) override
	{
		return seen(reduced(asked(CALL_ALL_REDUCE, tensors), options.reduceOp), tensors,
			    [&] { return gloo_->allreduce_sparse(tensors, options); });
	}

	WorkPtr broadcast(Tensors &tensors, const BroadcastOptions &options) override
	{
		int root = (int)options.rootRank;
		auto what = rooted(asked(CALL_BROADCAST, tensors, elements_of(tensors)), root);

		if (tensors.size() == 1 && options.rootTensor == 0 && is_plain(tensors[0]) &&
		    carries(tensors))
			return carried(OpType::BROADCAST, "inc:broadcast", what, size_of(tensors), tensors,
				       [&](const py::object &work) {
					       script_->broadcast(work, tensors, rank_, root);
				       });
		return seen(what, tensors, [&] { return gloo_->broadcast(tensors, options); });
	}

	WorkPtr reduce(Tensors &tensors, const ReduceOptions &options) override
	{
		auto what = reduced(asked(CALL_REDUCE, tensors, elements_of(tensors)), options.reduceOp);

		return seen(rooted(what, options.rootRank), tensors,
			    [&] { return gloo_->reduce(tensors, options); });
	}

	WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
			  const AllgatherOptions &options) override
	{
		auto what = asked(CALL_ALL_GATHER, inputs, elements_of(inputs));

		if (inputs.size() == 1 && are_all_parts(outputs, inputs, size_) && carries(outputs))
			return gather(OpType::ALLGATHER, "inc:all_gather", what, outputs[0], outputs, inputs);
		return seen(what, outputs, [&] { return gloo_->allgather(outputs, inputs, options); });
	}

	WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
				const AllgatherOptions &options) override
	{
		auto what = asked(CALL_ALL_GATHER, {input}, elements_of({input}));

		if (are_parts({output}, input, size_) && carries(output))
			return gather(OpType::_ALLGATHER_BASE, "inc:_all_gather_base", what, {output},
				      {{output}}, {input});
		return seen(what, output, [&] { return gloo_->_allgather_base(output, input, options); });
	}

	WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
				    const AllgatherOptions &options) override
	{
		return seen(asked(CALL_ALL_GATHER, inputs, elements_of(inputs)), outputs,
			    [&] { return gloo_->allgather_coalesced(outputs, inputs, options); });
	}

	WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
						const AllgatherOptions &options) override
	{
		auto what = asked(CALL_ALL_GATHER, inputs, elements_of(inputs));

		if (are_all_parts(each_alone(outputs), inputs, size_) && carries(outputs))
			return gather(OpType::COALESCED, "inc:all_gather_into_tensor_coalesced", what, outputs,
				      each_alone(outputs), inputs);
		return seen(what, outputs, [&] {
			return gloo_->allgather_into_tensor_coalesced(outputs, inputs, options);
		});
	}

	WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const GatherOptions &options) override
	{
		return seen(rooted(asked(CALL_GATHER, inputs, elements_of(inputs)), options.rootRank), outputs,
			    [&] { return gloo_->gather(outputs, inputs, options); });
	}

	WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const ScatterOptions &options) override
	{
		return seen(rooted(asked(CALL_SCATTER, outputs, elements_of(outputs)), options.rootRank),
			    outputs, [&] { return gloo_->scatter(outputs, inputs, options); });
	}

	WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
			       const ReduceScatterOptions &options) override
	{
		auto what = reduced(asked(CALL_REDUCE_SCATTER, outputs, elements_of(outputs)),
				    options.reduceOp);

		if (inputs.size() == 1 && is_summed(inputs[0], options.reduceOp) &&
		    are_all_parts(inputs, outputs, size_) && carries(inputs))
			return scatter(OpType::REDUCE_SCATTER, "inc:reduce_scatter", what, outputs, inputs,
				       options.reduceOp);
		return seen(what, outputs, [&] { return gloo_->reduce_scatter(outputs, inputs, options); });
	}

	WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
				     const ReduceScatterOptions &options) override
	{
		auto what = reduced(asked(CALL_REDUCE_SCATTER, {output}, elements_of({output})),
				    options.reduceOp);

		if (is_summed({input}, options.reduceOp) && are_parts({input}, output, size_) &&
		    carries(input))
			return scatter(OpType::_REDUCE_SCATTER_BASE, "inc:_reduce_scatter_base", what,
				       {output}, {{input}}, options.reduceOp);
		return seen(what, output, [&] { return gloo_->_reduce_scatter_base(output, input, options); });
	}

	WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
						const ReduceScatterOptions &options) override
	{
		auto what = reduced(asked(CALL_REDUCE_SCATTER, outputs, elements_of(outputs)),
				    options.reduceOp);

		if (is_summed(inputs, options.reduceOp) &&
		    are_all_parts(each_alone(inputs), outputs, size_) && carries(inputs))
			return scatter(OpType::COALESCED, "inc:reduce_scatter_tensor_coalesced", what, outputs,
				       each_alone(inputs), options.reduceOp);
		return seen(what, outputs, [&] {
			return gloo_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
		});
	}

	WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
			      std::vector<int64_t> &input_sizes, const AllToAllOptions &options) override
	{
		return seen(asked(CALL_ALL_TO_ALL, {input}), output, [&] {
			return gloo_->alltoall_base(output, input, output_sizes, input_sizes, options);
		});
	}

	WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const AllToAllOptions &options) override
	{
		return seen(asked(CALL_ALL_TO_ALL, inputs), outputs,
			    [&] { return gloo_->alltoall(outputs, inputs, options); });
	}

	WorkPtr barrier(const BarrierOptions &options) override
	{
		return seen(asked(CALL_BARRIER), Tensors(), [&] { return gloo_->barrier(options); });
	}

	/* Between two workers, or waited for within: of no timeline. */
	WorkPtr send(Tensors &tensors, int rank, int tag) override
	{
		Unlocked unlocked;

		count(size_of(tensors));
		return gloo_->send(tensors, rank, tag);
	}

	WorkPtr recv(Tensors &tensors, int rank, int tag) override
	{
		Unlocked unlocked;

		return gloo_->recv(tensors, rank, tag);
	}

	WorkPtr recvAnysource(Tensors &tensors, int tag) override
	{
		Unlocked unlocked;

		return gloo_->recvAnysource(tensors, tag);
	}

	void monitoredBarrier(const BarrierOptions &options, bool wait_all_ranks) override
	{
		Unlocked unlocked;

		gloo_->monitoredBarrier(options, wait_all_ranks);
	}

	void setSequenceNumberForGroup() override
	{
		Unlocked unlocked;

		gloo_->setSequenceNumberForGroup();
	}

	/* All collectives, by which TORCH_DISTRIBUTED_DEBUG tells them apart: gloo knows of its own. */
	uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup() + summed_; }
	c10::intrusive_ptr<Options> getBackendOptions() override { return gloo_->getBackendOptions(); }
	void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
	void enableCollectivesTiming() override { gloo_->enableCollectivesTiming(); }
	bool supportsSplitting() const override { return gloo_->supportsSplitting(); }

	/* A part of the workers, whose sums are gloo's; null where this worker is in none. */
	BackendPtr split(const c10::intrusive_ptr<Store> &store, const std::vector<int> &ranks,
			 const c10::intrusive_ptr<Options> &options) override
	{
		Unlocked unlocked;

		return beside(gloo_->split(store, ranks, options));
	}

	BackendPtr merge(const c10::intrusive_ptr<Store> &store, const c10::intrusive_ptr<Options> &options,
			 const int &rank, const int &size) override
	{
		Unlocked unlocked;

		return beside(gloo_->merge(store, options, rank, size));
	}

	void abort() override
	{
		Unlocked unlocked;

		gloo_->abort();
	}

	void shutdown() override
	{
		Unlocked unlocked;

		gloo_->shutdown();
		if (script_)
			script_->shutdown();
	}

  private:
	WorkPtr sum(Asked what, const Tensors &tensors, bool average)
	{
		return carried(OpType::ALLREDUCE, "inc:all_reduce", what, summed_size(tensors), tensors,
			       [&](const py::object &work) { script_->start(work, tensors, average); });
	}

	WorkPtr gather(OpType type, const char *title, Asked what, const Tensors &result,
		       const std::vector<Tensors> &outputs, const Tensors &inputs)
	{
		return carried(type, title, what, size_of(outputs), result, [&](const py::object &work) {
			script_->gather(work, outputs, inputs, rank_);
		});
	}

	WorkPtr scatter(OpType type, const char *title, Asked what, const Tensors &outputs,
			const std::vector<Tensors> &inputs, const ReduceOp &operation)
	{
		return carried(type, title, what, size_ * summed_size(outputs), outputs,
			       [&](const py::object &work) {
				       script_->scatter(work, outputs, inputs, rank_,
							operation == ReduceOp::AVG);
			       });
	}

	int64_t summed_size(const Tensors &tensors) const
	{
		return script_->sums_in_lanes() ? (int64_t)sizeof(float) * elements_of(tensors)
						: size_of(tensors);
	}

	/* By sizes, which all workers know: they decide alike. */
	template <typename Data> bool carries(const Data &data) const
	{
		return script_ && script_->carries(size_of(data));
	}

	/* What `start` has the script begin. */
	template <typename Start>
	WorkPtr carried(OpType type, const char *title, Asked what, int64_t size_bytes, const Tensors &result,
			Start start)
	{
		Unlocked unlocked;
		bool is_sum = what.what >> CALL_OPERATION_SHIFT & 0xff;
		auto work = c10::make_intrusive<SumWork>(
			rank_, type, title, result,
			watched(what, size_bytes, is_sum ? COURSE_SUMMED : COURSE_BESIDE));

		summed_++;
		{
			py::gil_scoped_acquire locked;

			Discarded::all().let_go();
			start(py::cast(work));
		}
		return work;
	}

	template <typename Data, typename Collective>
	WorkPtr seen(Asked what, const Data &data, Collective collective)
	{
		Unlocked unlocked;
		int64_t size_bytes = size_of(data);

		count(size_bytes);
		if (!course_ && !order_)
			return collective();
		auto its = watched(what, size_bytes, COURSE_BESIDE);

		return c10::make_intrusive<SeenWork>(rank_, collective(), std::move(its));
	}

	Watched watched(Asked what, int64_t size_bytes, int64_t kind)
	{
		uint64_t call = order_ ? order_->ask(what) : 0;

		return {course_, order_, course_ ? course_->ask(size_bytes, kind) : 0, call};
	}

	static BackendPtr beside(BackendPtr gloo)
	{
		return gloo ? c10::make_intrusive<IncBackend>(std::move(gloo), nullptr, nullptr, nullptr,
							      nullptr)
			    : nullptr;
	}

	void count(int64_t size_bytes)
	{
		by_gloo_bytes += size_bytes;
		if (tally_)
			tally_->size_bytes += size_bytes;
	}

	BackendPtr gloo_;
	ScriptPtr script_;
	std::atomic<uint64_t> summed_{0}; /* sums of the script's reducer */
	TallyPtr tally_;
	CoursePtr course_; /* null where the group sums nothing */
	OrderPtr order_;   /* null for a part that torch split off */
};

} // namespace inc

PYBIND11_MODULE(_backend, module)
{
	using namespace inc;

	py::module_::import("torch._C._distributed_c10d");
	py::class_<Tally, TallyPtr>(module, "Tally").def(py::init<>()).def_property_readonly(
		"size_bytes", [](const Tally &tally) { return tally.size_bytes.load(); });
	py::class_<SumWork, Work, c10::intrusive_ptr<SumWork>>(module, "SumWork")
		.def_property("outcomes", &SumWork::outcomes, &SumWork::set_outcomes)
		.def("done", &SumWork::done, py::call_guard<py::gil_scoped_release>())
		.def("fail", &SumWork::fail, py::arg("text"), py::call_guard<py::gil_scoped_release>());
	py::class_<Timeline, std::shared_ptr<Timeline>>(module, "Timeline")
		.def(py::init<size_t>(), py::arg("most_rows") = ROWS_MOST)
		.def("ask", &Timeline::ask, py::arg("size_bytes"), py::arg("kind"))
		.def("use", &Timeline::use, py::arg("number"), py::arg("resource"), py::arg("seconds"),
		     py::arg("behind"))
		.def("is_there", &Timeline::is_there, py::arg("number"))
		.def("wait", &Timeline::wait, py::arg("number"))
		.def("resume", &Timeline::resume, py::arg("number"))
		.def_property_readonly("last", &Timeline::last)
		.def("summary", &Timeline::summary);
	py::class_<Course, CoursePtr>(module, "Course")
		.def(py::init<uint64_t, uint64_t, std::shared_ptr<Timeline>>(), py::arg("asked"),
		     py::arg("waits_for"), py::arg("timeline"))
		.def("ask", &Course::ask, py::arg("size_bytes"), py::arg("kind"))
		.def("is_there", &Course::is_there, py::arg("number"))
		.def("wait", &Course::wait, py::arg("number"))
		.def("resume", &Course::resume, py::arg("number"), py::arg("in_vain") = false)
		.def_property_readonly("last", &Course::last);
	py::class_<Order, OrderPtr>(module, "Order")
		.def(py::init<uint64_t, std::vector<int>, int, uint64_t, py::object>(), py::arg("tables"),
		     py::arg("ranks"), py::arg("member"), py::arg("group"), py::arg("why"))
		.def(
			"ask", [](Order &order, uint64_t what, uint64_t elements) {
				return order.ask({what, elements});
			},
			py::arg("what"), py::arg("elements"), py::call_guard<py::gil_scoped_release>())
		.def("check", &Order::check, py::call_guard<py::gil_scoped_release>());
	py::class_<IncBackend, Backend, c10::intrusive_ptr<IncBackend>>(module, "IncBackend")
		.def(py::init([](BackendPtr gloo, const py::object &sums, TallyPtr tally, OrderPtr order) {
			     return sums.is_none() ? c10::make_intrusive<IncBackend>(
							     std::move(gloo), nullptr, std::move(tally),
							     nullptr, std::move(order))
						   : c10::make_intrusive<IncBackend>(
							     std::move(gloo), sums, std::move(tally),
							     std::move(order));
		     }),
		     py::arg("gloo"), py::arg("sums"), py::arg("tally") = TallyPtr(),
		     py::arg("order") = OrderPtr());
	module.def("by_gloo_bytes", [] { return by_gloo_bytes.load(); });
	module.def(
		"drain", [](double seconds) { return Completions::all().drain(seconds); },
		py::arg("seconds"), py::call_guard<py::gil_scoped_release>());
}
