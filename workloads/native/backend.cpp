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
	IncBackend(BackendPtr gloo, ScriptPtr script, TallyPtr tally)
	    : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)), script_(std::move(script)),
	      tally_(std::move(tally))
	{
	}

	~IncBackend() override
	{
		Unlocked unlocked; /* gloo waits for its threads, which may wait for the interpreter */

		gloo_.reset();
	}

	const std::string getBackendName() const override { return "inc"; }

	WorkPtr allreduce(Tensors &tensors, const AllreduceOptions &options) override
	{
		if (script_ && is_summed(tensors, options.reduceOp))
			return sum(tensors, options.reduceOp == ReduceOp::AVG);
		return seen(tensors, [&] { return gloo_->allreduce(tensors, options); });
	}

	WorkPtr allreduce_coalesced(Tensors &tensors, const AllreduceCoalescedOptions &options) override
	{
		if (script_ && is_summed(tensors, options.reduceOp))
			return sum(tensors, options.reduceOp == ReduceOp::AVG);
		return seen(tensors, [&] { return gloo_->allreduce_coalesced(tensors, options); });
	}

	WorkPtr allreduce_sparse(Tensors &tensors, const AllreduceOptions &options) override
	{
		return seen(tensors, [&] { return gloo_->allreduce_sparse(tensors, options); });
	}

	WorkPtr broadcast(Tensors &tensors, const BroadcastOptions &options) override
	{
		int root = (int)options.rootRank;

		if (tensors.size() == 1 && options.rootTensor == 0 && is_plain(tensors[0]) &&
		    carries(tensors))
			return carried(OpType::BROADCAST, "inc:broadcast", tensors,
				       [&](const py::object &work) {
					       return script_->broadcast(work, tensors, rank_, root);
				       });
		return seen(tensors, [&] { return gloo_->broadcast(tensors, options); });
	}

	WorkPtr reduce(Tensors &tensors, const ReduceOptions &options) override
	{
		return seen(tensors, [&] { return gloo_->reduce(tensors, options); });
	}

	WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
			  const AllgatherOptions &options) override
	{
		if (inputs.size() == 1 && are_all_parts(outputs, inputs, size_) && carries(outputs))
			return gather(OpType::ALLGATHER, "inc:all_gather", outputs[0], outputs, inputs);
		return seen(outputs, [&] { return gloo_->allgather(outputs, inputs, options); });
	}

	WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
				const AllgatherOptions &options) override
	{
		if (are_parts({output}, input, size_) && carries(output))
			return gather(OpType::_ALLGATHER_BASE, "inc:_all_gather_base", {output}, {{output}},
				      {input});
		return seen(output, [&] { return gloo_->_allgather_base(output, input, options); });
	}

	WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
				    const AllgatherOptions &options) override
	{
		return seen(outputs, [&] { return gloo_->allgather_coalesced(outputs, inputs, options); });
	}

	WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
						const AllgatherOptions &options) override
	{
		if (are_all_parts(each_alone(outputs), inputs, size_) && carries(outputs))
			return gather(OpType::COALESCED, "inc:all_gather_into_tensor_coalesced", outputs,
				      each_alone(outputs), inputs);
		return seen(outputs, [&] {
			return gloo_->allgather_into_tensor_coalesced(outputs, inputs, options);
		});
	}

	WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const GatherOptions &options) override
	{
		return seen(outputs, [&] { return gloo_->gather(outputs, inputs, options); });
	}

	WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const ScatterOptions &options) override
	{
		return seen(outputs, [&] { return gloo_->scatter(outputs, inputs, options); });
	}

	WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
			       const ReduceScatterOptions &options) override
	{
		if (inputs.size() == 1 && is_summed(inputs[0], options.reduceOp) &&
		    are_all_parts(inputs, outputs, size_) && carries(inputs))
			return scatter(OpType::REDUCE_SCATTER, "inc:reduce_scatter", outputs, inputs,
				       options.reduceOp);
		return seen(outputs, [&] { return gloo_->reduce_scatter(outputs, inputs, options); });
	}

	WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
				     const ReduceScatterOptions &options) override
	{
		if (is_summed({input}, options.reduceOp) && are_parts({input}, output, size_) &&
		    carries(input))
			return scatter(OpType::_REDUCE_SCATTER_BASE, "inc:_reduce_scatter_base", {output},
				       {{input}}, options.reduceOp);
		return seen(output, [&] { return gloo_->_reduce_scatter_base(output, input, options); });
	}

	WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
						const ReduceScatterOptions &options) override
	{
		if (is_summed(inputs, options.reduceOp) &&
		    are_all_parts(each_alone(inputs), outputs, size_) && carries(inputs))
			return scatter(OpType::COALESCED, "inc:reduce_scatter_tensor_coalesced", outputs,
				       each_alone(inputs), options.reduceOp);
		return seen(outputs, [&] {
			return gloo_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
		});
	}

	WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
			      std::vector<int64_t> &input_sizes, const AllToAllOptions &options) override
	{
		return seen(output, [&] {
			return gloo_->alltoall_base(output, input, output_sizes, input_sizes, options);
		});
	}

	WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const AllToAllOptions &options) override
	{
		return seen(outputs, [&] { return gloo_->alltoall(outputs, inputs, options); });
	}

	WorkPtr barrier(const BarrierOptions &options) override
	{
		return seen(Tensors(), [&] { return gloo_->barrier(options); });
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
	WorkPtr sum(const Tensors &tensors, bool average)
	{
		return carried(OpType::ALLREDUCE, "inc:all_reduce", tensors, [&](const py::object &work) {
			return script_->start(work, tensors, average);
		});
	}

	WorkPtr gather(OpType type, const char *title, const Tensors &result,
		       const std::vector<Tensors> &outputs, const Tensors &inputs)
	{
		return carried(type, title, result, [&](const py::object &work) {
			return script_->gather(work, outputs, inputs, rank_);
		});
	}

	WorkPtr scatter(OpType type, const char *title, const Tensors &outputs,
			const std::vector<Tensors> &inputs, const ReduceOp &operation)
	{
		return carried(type, title, outputs, [&](const py::object &work) {
			return script_->scatter(work, outputs, inputs, rank_, operation == ReduceOp::AVG);
		});
	}

	/* By sizes, which all workers know: they decide alike. */
	template <typename Data> bool carries(const Data &data) const
	{
		return script_ && script_->carries(size_of(data));
	}

	/* What `start` has the script begin, which gives it a number. */
	template <typename Start>
	WorkPtr carried(OpType type, const char *title, const Tensors &result, Start start)
	{
		Unlocked unlocked;
		auto work = c10::make_intrusive<SumWork>(rank_, type, title, result, script_);
		int64_t number;

		summed_++;
		{
			py::gil_scoped_acquire locked;

			Discarded::all().let_go();
			number = start(py::cast(work));
		}
		work->is_numbered(number);
		return work;
	}

	template <typename Data, typename Collective> WorkPtr seen(const Data &data, Collective collective)
	{
		Unlocked unlocked;
		int64_t size_bytes = size_of(data), number;

		count(size_bytes);
		if (!script_)
			return collective();
		number = script_->ask(size_bytes);

		return c10::make_intrusive<SeenWork>(rank_, collective(), script_, number);
	}

	static BackendPtr beside(BackendPtr gloo)
	{
		return gloo ? c10::make_intrusive<IncBackend>(std::move(gloo), nullptr, nullptr) : nullptr;
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
	py::class_<IncBackend, Backend, c10::intrusive_ptr<IncBackend>>(module, "IncBackend")
		.def(py::init([](BackendPtr gloo, const py::object &sums, TallyPtr tally) {
			     return c10::make_intrusive<IncBackend>(
				     std::move(gloo),
				     sums.is_none() ? nullptr : std::make_shared<const Script>(sums),
				     std::move(tally));
		     }),
		     py::arg("gloo"), py::arg("sums"), py::arg("tally") = TallyPtr());
	module.def("by_gloo_bytes", [] { return by_gloo_bytes.load(); });
	module.def(
		"drain", [](double seconds) { return Completions::all().drain(seconds); },
		py::arg("seconds"), py::call_guard<py::gil_scoped_release>());
}
