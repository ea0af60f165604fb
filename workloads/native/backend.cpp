/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C++ half of the torch backend `inc`: a c10d::Backend that passes sums to workloads/sums.py (Sums) and
 * everything else to a gloo backend inside it. Compiled against the installed torch
 * (workloads/native/build.py); docs/backend.md says why it is not Python.
 *
 * Three rules keep it from hanging. A thread that holds the interpreter's lock never enters gloo. A sum stays
 * alive until it has ended, whoever releases it. A callback never runs on the sum thread, so that it may wait
 * for a later sum.
 */
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <pybind11/chrono.h>

#include <atomic>
#include <numeric>

#include "after.hpp"
#include "circuits.hpp"
#include "line.hpp"
#include "staging.hpp"
#include "works.hpp"

using namespace c10d;

namespace inc {

/* The bytes of tensors, not of packets, that gloo carries for all groups of this process. */
std::atomic<int64_t> by_gloo_bytes{0};

/* The same for one group. */
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

/* The part of a call that must be equal on all workers; the type is that of the first of `tensors`. */
Asked asked(uint64_t kind, const Tensors &tensors = {}, int64_t elements = 0)
{
	uint64_t type = tensors.empty() || !tensors[0].defined() ? 0 : (uint64_t)tensors[0].scalar_type() + 1;

	return {kind | type << CALL_TYPE_SHIFT, (uint64_t)elements};
}

Asked by(const ReduceOp &operation, Asked asked)
{
	asked.what |= ((uint64_t)(ReduceOp::RedOpType)operation + 1) << CALL_OPERATION_SHIFT;
	return asked;
}

Asked rooted(int64_t root, Asked asked)
{
	asked.what |= (uint64_t)(root + 1) << CALL_ROOT_SHIFT;
	return asked;
}

/*
 * Records the script's call for this object's lifetime. Calls that replace it, with other types or
 * operations, are reported as the script's own call.
 */
class Said {
  public:
	explicit Said(Asked asked) : is_first_(!its())
	{
		if (is_first_)
			its() = asked;
	}

	~Said()
	{
		if (is_first_)
			its().reset();
	}

	static Asked now() { return its().value_or(Asked{0, 0}); }

  private:
	static std::optional<Asked> &its()
	{
		static thread_local std::optional<Asked> its;

		return its;
	}

	bool is_first_;
};

/* Whether the job's reducer can sum these tensors by this operation. */
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
 * Whether `parts` is the side of a collective that has the parts of all workers: one tensor for each, or one
 * for all. If not, gloo reports what is wrong.
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
 * The name of an all-reduce of integers in the sizes that the network carries: it was measured with this
 * type.
 */
constexpr const char *REDUCTION = "all_reduce of int64";

/*
 * The backend of a process group. Sums and averages of floats go to the job's reducer, if there is one. So do
 * gather, broadcast and scatter collectives, and reductions of gathered values, at the sizes that the network
 * carries. Gloo has all other methods; tests/unit/test_backend_methods.py compares them with torch's own
 * list.
 */
class IncBackend : public Backend {
  public:
	IncBackend(BackendPtr gloo, const py::object &sums, TallyPtr tally, OrderPtr order)
	    : IncBackend(std::move(gloo), std::move(tally), std::move(order))
	{
		script_ = std::make_shared<const Script>(sums);
		course_ = sums.attr("course").cast<CoursePtr>();
		line_ = sums.attr("line").cast<LinePtr>();
	}

	/* For a group that gloo alone serves. */
	IncBackend(BackendPtr gloo, TallyPtr tally, OrderPtr order)
	    : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)), tally_(std::move(tally)),
	      order_(std::move(order))
	{
	}

	~IncBackend() override
	{
		Unlocked unlocked; /* gloo waits for its threads, which may wait for the interpreter's lock */

		if (order_ && order_->is_broken())
			gloo_.release(); /* its threads wait, until timeout, for calls never made */
		gloo_.reset();
	}

	const std::string getBackendName() const override { return "inc"; }

	WorkPtr allreduce(Tensors &tensors, const AllreduceOptions &options) override
	{
		Said said(by(options.reduceOp, asked(CALL_ALL_REDUCE, tensors, elements_of(tensors))));

		if (script_ && is_summed(tensors, options.reduceOp))
			return sum(tensors, options.reduceOp == ReduceOp::AVG, limit(options));
		if (Reduced::is_needed(options.reduceOp, tensors))
			return reduced(tensors, options, [this](Tensors &all, const auto &how) {
				return allreduce(all, how);
			});
		if (tensors.size() == 1 && are_reduced_here(tensors, options.reduceOp) &&
		    carries(REDUCTION, tensors))
			return reduce_here(OpType::ALLREDUCE, tensors, options.reduceOp, limit(options));
		return seen(tensors, [&] { return gloo_->allreduce(tensors, options); });
	}

	WorkPtr allreduce_coalesced(Tensors &tensors, const AllreduceCoalescedOptions &options) override
	{
		Said said(by(options.reduceOp, asked(CALL_ALL_REDUCE, tensors, elements_of(tensors))));

		if (script_ && is_summed(tensors, options.reduceOp))
			return sum(tensors, options.reduceOp == ReduceOp::AVG, limit(options));
		if (Reduced::is_needed(options.reduceOp, tensors))
			return reduced(tensors, options, [this](Tensors &all, const auto &how) {
				return allreduce_coalesced(all, how);
			});
		if (are_reduced_here(tensors, options.reduceOp) && carries(REDUCTION, tensors))
			return reduce_here(OpType::COALESCED, tensors, options.reduceOp, limit(options));
		return seen(tensors, [&] { return gloo_->allreduce_coalesced(tensors, options); });
	}

	WorkPtr allreduce_sparse(Tensors &tensors, const AllreduceOptions &options) override
	{
		Said said(by(options.reduceOp, asked(CALL_ALL_REDUCE, tensors)));

		return seen(tensors, [&] { return gloo_->allreduce_sparse(tensors, options); });
	}

	WorkPtr broadcast(Tensors &tensors, const BroadcastOptions &options) override
	{
		Said said(rooted(options.rootRank, asked(CALL_BROADCAST, tensors, elements_of(tensors))));

		int root = (int)options.rootRank;
		bool is_valid = root >= 0 && root < size_ && options.rootTensor == 0; /* else gloo's error */

		if (tensors.size() == 1 && is_valid && is_plain(tensors[0]) && carries("broadcast", tensors))
			return carried(OpType::BROADCAST, "inc:broadcast", size_of(tensors), tensors,
				       limit(options), COURSE_BESIDE, [&] {
					       return std::vector<Vector>{
						       broadcast_of(tensors[0], rank_, root)};
				       });
		if (!is_gloos(tensors) && are_plain(tensors)) {
			Moved staged;
			auto all = staged.written(tensors);

			return after(broadcast(all, options), tensors, staged.after());
		}
		return seen(tensors, [&] { return gloo_->broadcast(tensors, options); });
	}

	WorkPtr reduce(Tensors &tensors, const ReduceOptions &options) override
	{
		Said said(rooted(options.rootRank,
			  by(options.reduceOp, asked(CALL_REDUCE, tensors, elements_of(tensors)))));

		if (Reduced::is_needed(options.reduceOp, tensors)) {
			Reduced staged(options.reduceOp, tensors, size_);
			auto all = staged.written(tensors);
			auto how = options;

			how.reduceOp = staged.operation;
			return after(reduce(all, how), tensors,
				     rank_ == options.rootRank ? staged.after() : [] {});
		}
		return seen(tensors, [&] { return gloo_->reduce(tensors, options); });
	}

	WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
			  const AllgatherOptions &options) override
	{
		Said said(asked(CALL_ALL_GATHER, inputs,
				is_uneven(outputs, inputs) ? 0 : elements_of(inputs)));

		if (inputs.size() == 1 && are_all_parts(outputs, inputs, size_) && carries("all_gather", outputs))
			return gather(OpType::ALLGATHER, "inc:all_gather", outputs[0], outputs, inputs,
				      limit(options));
		if (is_uneven(outputs, inputs))
			return gather_unevenly(outputs[0], inputs[0], options);
		if (is_staged(outputs, inputs) || !are_of_a_shape(outputs, inputs)) {
			Moved staged;
			auto all = staged.written(outputs);
			auto mine = staged.read(inputs);

			return after(allgather(all, mine, options), outputs, staged.after());
		}
		return seen(outputs, [&] { return gloo_->allgather(outputs, inputs, options); });
	}

	WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
				const AllgatherOptions &options) override
	{
		Said said(asked(CALL_ALL_GATHER, {input}, elements_of({input})));

		if (are_parts({output}, input, size_) && carries("all_gather", output))
			return gather(OpType::_ALLGATHER_BASE, "inc:_all_gather_base", {output}, {{output}},
				      {input}, limit(options));
		if (is_staged(Tensors{output}, Tensors{input}) || !are_rows(output, input, size_)) {
			Moved staged;
			auto all = staged.written(output), mine = staged.read(input);

			return after(_allgather_base(all, mine, options), {output}, staged.after());
		}
		return seen(output, [&] { return gloo_->_allgather_base(output, input, options); });
	}

	WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
				    const AllgatherOptions &options) override
	{
		Said said(asked(CALL_ALL_GATHER, inputs, elements_of(inputs)));

		if (is_staged(outputs, inputs)) {
			Moved staged;
			auto all = staged.written(outputs);
			auto mine = staged.read(inputs);

			return after(allgather_coalesced(all, mine, options), outputs, staged.after());
		}
		return seen(outputs, [&] { return gloo_->allgather_coalesced(outputs, inputs, options); });
	}

	WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
						const AllgatherOptions &options) override
	{
		Said said(asked(CALL_ALL_GATHER, inputs, elements_of(inputs)));

		if (are_all_parts(each_alone(outputs), inputs, size_) && carries("all_gather", outputs))
			return gather(OpType::COALESCED, "inc:all_gather_into_tensor_coalesced", outputs,
				      each_alone(outputs), inputs, limit(options));
		if (is_staged(outputs, inputs) || !are_all_rows(outputs, inputs)) {
			Moved staged;
			auto all = staged.written(outputs), mine = staged.read(inputs);

			return after(allgather_into_tensor_coalesced(all, mine, options), outputs,
				     staged.after());
		}
		return seen(outputs, [&] {
			return gloo_->allgather_into_tensor_coalesced(outputs, inputs, options);
		});
	}

	WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const GatherOptions &options) override
	{
		Said said(rooted(options.rootRank, asked(CALL_GATHER, inputs, elements_of(inputs))));

		if (is_staged(outputs, inputs)) {
			Moved staged;
			auto all = staged.written(outputs);
			auto mine = staged.read(inputs);

			return after(gather(all, mine, options), outputs, staged.after());
		}
		return seen(outputs, [&] { return gloo_->gather(outputs, inputs, options); });
	}

	WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const ScatterOptions &options) override
	{
		Said said(rooted(options.rootRank, asked(CALL_SCATTER, outputs, elements_of(outputs))));

		if (is_staged(outputs, inputs)) {
			Moved staged;
			auto mine = staged.written(outputs);
			auto all = staged.read(inputs);

			return after(scatter(mine, all, options), outputs, staged.after());
		}
		return seen(outputs, [&] { return gloo_->scatter(outputs, inputs, options); });
	}

	WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
			       const ReduceScatterOptions &options) override
	{
		Said said(by(options.reduceOp,
			     asked(CALL_REDUCE_SCATTER, outputs, elements_of(flat(inputs)))));

		if (inputs.size() == 1 && is_summed(inputs[0], options.reduceOp) &&
		    are_all_parts(inputs, outputs, size_) && carries("reduce_scatter", inputs))
			return scatter(OpType::REDUCE_SCATTER, "inc:reduce_scatter", outputs, inputs,
				       options.reduceOp, limit(options));
		if (are_reduced(inputs, outputs))
			return reduce_parts(outputs, inputs, options);
		return seen(outputs, [&] { return gloo_->reduce_scatter(outputs, inputs, options); });
	}

	WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
				     const ReduceScatterOptions &options) override
	{
		Said said(by(options.reduceOp, asked(CALL_REDUCE_SCATTER, {input}, elements_of({input}))));

		if (is_summed({input}, options.reduceOp) && are_parts({input}, output, size_) &&
		    carries("reduce_scatter", input))
			return scatter(OpType::_REDUCE_SCATTER_BASE, "inc:_reduce_scatter_base", {output},
				       {{input}}, options.reduceOp, limit(options));
		if (are_reduced({{input}}, {output}))
			return reduce_parts({output}, {{input}}, options);
		return seen(output, [&] { return gloo_->_reduce_scatter_base(output, input, options); });
	}

	WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
						const ReduceScatterOptions &options) override
	{
		Said said(by(options.reduceOp, asked(CALL_REDUCE_SCATTER, inputs, elements_of(inputs))));

		if (is_summed(inputs, options.reduceOp) &&
		    are_all_parts(each_alone(inputs), outputs, size_) && carries("reduce_scatter", inputs))
			return scatter(OpType::COALESCED, "inc:reduce_scatter_tensor_coalesced", outputs,
				       each_alone(inputs), options.reduceOp, limit(options));
		if (are_reduced(each_alone(inputs), outputs))
			return reduce_parts(outputs, each_alone(inputs), options);
		return seen(outputs, [&] {
			return gloo_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
		});
	}

	WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
			      std::vector<int64_t> &input_sizes, const AllToAllOptions &options) override
	{
		Said said(asked(CALL_ALL_TO_ALL, {input}));

		if (is_staged(Tensors{output}, Tensors{input})) {
			Moved staged;
			auto here = staged.written(output), there = staged.read(input);
			auto gotten = in_elements(output_sizes, output, here);
			auto given = in_elements(input_sizes, input, there);

			return after(alltoall_base(here, there, gotten, given, options), {output},
				     staged.after());
		}
		return seen(output, [&] {
			return gloo_->alltoall_base(output, input, output_sizes, input_sizes, options);
		});
	}

	WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const AllToAllOptions &options) override
	{
		Said said(asked(CALL_ALL_TO_ALL, inputs));

		if (outputs.size() != (size_t)size_ || inputs.size() != (size_t)size_ ||
		    !are_plain(outputs) || !are_plain(inputs) || !are_of_a_type(outputs, inputs))
			return seen(outputs, [&] { return gloo_->alltoall(outputs, inputs, options); });

		/* here gloo needs tensors of equal sizes; in alltoall_base it accepts parts of any size */
		Unlocked unlocked;
		Moved staged;
		auto here = staged.written(outputs), there = staged.read(inputs);
		auto gotten = elements(here), given = elements(there);
		auto whole = joined(there), result = joined(here);

		return after(alltoall_base(result, whole, gotten, given, options), outputs,
			     [result, here, copy = staged.after()] {
				     divide(result, here);
				     copy();
			     });
	}

	WorkPtr barrier(const BarrierOptions &options) override
	{
		Said said(asked(CALL_BARRIER));

		return seen(Tensors(), [&]() -> WorkPtr {
			auto work = gloo_->barrier(options), before = fence();

			if (!before)
				return work;
			return c10::make_intrusive<TogetherWork>(rank_, std::vector{work, before},
								 OpType::BARRIER);
		});
	}

	/* Point-to-point calls, and those that block, are not in the timeline. */
	WorkPtr send(Tensors &tensors, int rank, int tag) override
	{
		Unlocked unlocked;
		uint64_t number = circuits_ ? circuits_->begin(CALL_SEND, size_of(tensors), rank) : 0;

		count(size_of(tensors));
		return coalesced_.kept(told_by_wait(gloo_->send(tensors, rank, tag), number));
	}

	WorkPtr recv(Tensors &tensors, int rank, int tag) override
	{
		Unlocked unlocked;
		uint64_t number = circuits_ ? circuits_->begin(CALL_RECEIVE, size_of(tensors), rank) : 0;

		return coalesced_.kept(told_by_wait(gloo_->recv(tensors, rank, tag), number));
	}

	WorkPtr recvAnysource(Tensors &tensors, int tag) override
	{
		Unlocked unlocked;

		return coalesced_.kept(gloo_->recvAnysource(tensors, tag));
	}

	/* Between these two, calls start as usual, and are awaited as one. */
	void startCoalescing() override { coalesced_.start(); }

	WorkPtr endCoalescing() override
	{
		return c10::make_intrusive<TogetherWork>(rank_, coalesced_.end());
	}

	void monitoredBarrier(const BarrierOptions &options, bool wait_all_ranks) override
	{
		Unlocked unlocked;

		gloo_->monitoredBarrier(options, wait_all_ranks);
		if (auto before = fence())
			before->wait(std::chrono::milliseconds((int64_t)(1e3 * limit(options))));
	}

	void setSequenceNumberForGroup() override
	{
		Unlocked unlocked;

		gloo_->setSequenceNumberForGroup();
	}

	/* The number of all collectives, which TORCH_DISTRIBUTED_DEBUG uses: gloo counts only its own. */
	uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup() + summed_; }
	c10::intrusive_ptr<Options> getBackendOptions() override { return gloo_->getBackendOptions(); }
	void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
	void enableCollectivesTiming() override { gloo_->enableCollectivesTiming(); }
	bool supportsSplitting() const override { return gloo_->supportsSplitting(); }

	/* Lets a policy ask for the circuits of each call from now on. */
	void ask_for_circuits(const py::object &before, int fd)
	{
		circuits_ = std::make_shared<CallCircuits>(before, fd);
	}

	/* A group of some of the workers, whose sums gloo does; null if this worker is not in it. */
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
	/* A work that completes after all sums asked for until now; null if none is left. */
	WorkPtr fence() const
	{
		if (!line_)
			return nullptr;
		auto fence = c10::make_intrusive<SumWork>(rank_, OpType::BARRIER, nullptr, Tensors(),
							  Watched(nullptr, nullptr, 0, 0));

		return line_->ends(fence) ? WorkPtr(fence) : nullptr;
	}

	WorkPtr sum(const Tensors &tensors, bool average, double limit_s)
	{
		auto type = OpType::ALLREDUCE;
		const char *title = "inc:all_reduce";

		if (!line_->has_endpoint())
			return begun(type, title, summed_size(tensors), tensors, COURSE_SUMMED,
				     [&](const SumWorkPtr &work) {
					     script_->start(work, tensors, average, limit_s);
				     });
		return carried(
			type, title, summed_size(tensors), tensors, limit_s, COURSE_SUMMED,
			[&] {
				std::vector<Vector> vectors;

				for (const auto &tensor : tensors)
					vectors.push_back(
						summed(tensor, average, line_->workers(), line_->buffers));
				return vectors;
			},
			size_of(tensors));
	}

	WorkPtr gather(OpType type, const char *title, const Tensors &result,
		       const std::vector<Tensors> &outputs, const Tensors &inputs, double limit_s)
	{
		return carried(type, title, size_of(outputs), result, limit_s, COURSE_BESIDE, [&] {
			std::vector<Vector> vectors;

			for (size_t i = 0; i < inputs.size(); i++)
				vectors.push_back(gathered(outputs[i], inputs[i], rank_, size_));
			return vectors;
		});
	}

	WorkPtr reduce_here(OpType type, const Tensors &tensors, const ReduceOp &operation, double limit_s)
	{
		return carried(type, "inc:all_reduce", size_of(tensors), tensors, limit_s, COURSE_BESIDE, [&] {
			std::vector<Vector> vectors;

			for (const auto &tensor : tensors)
				vectors.push_back(reduced_here(tensor, operation, rank_, size_));
			return vectors;
		});
	}

	WorkPtr scatter(OpType type, const char *title, const Tensors &outputs,
			const std::vector<Tensors> &inputs, const ReduceOp &operation, double limit_s)
	{
		return carried(type, title, size_ * summed_size(outputs), outputs, limit_s, COURSE_SUMMED, [&] {
			std::vector<Vector> vectors;

			for (size_t i = 0; i < inputs.size(); i++)
				vectors.push_back(scattered(outputs[i], inputs[i], rank_, size_,
							    operation == ReduceOp::AVG, line_->buffers));
			return vectors;
		});
	}

	int64_t summed_size(const Tensors &tensors) const
	{
		return script_->sums_in_lanes() ? (int64_t)sizeof(float) * elements_of(tensors)
						: size_of(tensors);
	}

	/* A call's time limit in seconds: its own, else the group's, which may have been changed. */
	template <typename How> double limit(const How &options) const
	{
		auto given = options.timeout == c10d::kUnsetTimeout ? gloo_->getBackendOptions()->timeout
								    : options.timeout;

		return std::chrono::duration<double>(given).count();
	}

	/* The work of a call with staged tensors. */
	template <typename Result = Tensors> WorkPtr after(WorkPtr work, const Result &result, After then) const
	{
		return c10::make_intrusive<AfterWork>(rank_, std::move(work), result, std::move(then));
	}

	template <typename How, typename Call>
	WorkPtr reduced(const Tensors &tensors, const How &options, Call call)
	{
		Unlocked unlocked;
		Reduced staged(options.reduceOp, tensors, size_);
		auto all = staged.written(tensors);
		auto how = options;

		how.reduceOp = staged.operation;
		return after(call(all, how), tensors, staged.after());
	}

	/* Whether gloo needs staged tensors instead of these. */
	template <typename Outputs, typename Inputs>
	static bool is_staged(const Outputs &outputs, const Inputs &inputs)
	{
		return are_plain(outputs) && are_plain(inputs) &&
		       !(is_gloos(outputs) && is_gloos(inputs));
	}

	/* Whether each of `outputs` is this worker's part of tensors that gloo can sum. */
	bool are_reduced(const std::vector<Tensors> &inputs, const Tensors &outputs) const
	{
		if (inputs.empty() || inputs.size() != outputs.size() || !Reduced::has_types(outputs))
			return false;
		for (size_t i = 0; i < inputs.size(); i++) {
			const auto &parts = inputs[i];
			const auto &mine = parts.size() == 1 ? parts[0] : parts.at(rank_ % parts.size());
			bool is_whole = parts.size() == 1;

			if (!are_plain(parts) || (!is_whole && parts.size() != (size_t)size_) ||
			    mine.numel() != outputs[i].numel() * (is_whole ? size_ : 1))
				return false;
			for (const auto &part : parts)
				if (part.scalar_type() != outputs[i].scalar_type())
					return false;
		}
		return true;
	}

	/*
	 * Reduces and scatters as gloo does, by an all-reduce of all parts, but with a future, and for parts
	 * of any size.
	 */
	WorkPtr reduce_parts(const Tensors &outputs, const std::vector<Tensors> &inputs,
			     const ReduceScatterOptions &options)
	{
		Unlocked unlocked;
		Reduced staged(options.reduceOp, outputs, size_);
		AllreduceOptions how;
		Tensors wholes, parts;

		how.reduceOp = staged.operation;
		how.timeout = options.timeout;
		how.asyncOp = options.asyncOp;
		for (size_t i = 0; i < inputs.size(); i++) {
			int64_t before = rank_ * outputs[i].numel();

			if (inputs[i].size() > 1) {
				auto sizes = elements(inputs[i]);

				before = std::accumulate(sizes.begin(), sizes.begin() + rank_, (int64_t)0);
			}
			wholes.push_back(joined(staged.read(inputs[i])));
			parts.push_back(wholes.back().narrow(0, before, outputs[i].numel()));
		}
		auto work = seen(wholes, [&] {
			std::vector<WorkPtr> works;

			for (const auto &whole : wholes) {
				Tensors one{whole};

				works.push_back(gloo_->allreduce(one, how));
			}
			if (works.size() == 1)
				return works[0];
			return WorkPtr(c10::make_intrusive<TogetherWork>(rank_, works));
		});

		return after(work, outputs, [outputs, parts, mean = staged.mean()] {
			mean(parts);
			for (size_t i = 0; i < outputs.size(); i++)
				outputs[i].copy_(parts[i].view(outputs[i].sizes()));
		});
	}

	bool are_all_rows(const Tensors &wholes, const Tensors &parts) const
	{
		for (size_t i = 0; i < std::min(wholes.size(), parts.size()); i++)
			if (!are_rows(wholes[i], parts[i], size_))
				return false;
		return true;
	}

	/* Whether workers gather parts of different sizes: all see it by the outputs. */
	bool is_uneven(const std::vector<Tensors> &outputs, const Tensors &inputs) const
	{
		return outputs.size() == 1 && inputs.size() == 1 && outputs[0].size() == (size_t)size_ &&
		       are_plain(outputs) && are_plain(inputs) && !are_alike(outputs[0]) &&
		       outputs[0][rank_].numel() == inputs[0].numel();
	}

	/*
	 * Whether outputs and inputs have the shapes that gloo needs to gather them; true for calls that gloo
	 * refuses anyway.
	 */
	bool are_of_a_shape(const std::vector<Tensors> &outputs, const Tensors &inputs) const
	{
		if (outputs.size() != 1 || inputs.size() != 1 || !are_plain(outputs) || !are_plain(inputs))
			return true;
		for (const auto &output : outputs[0])
			if (output.numel() == inputs[0].numel() && output.sizes() != inputs[0].sizes())
				return false;
		return true;
	}

	WorkPtr gather_unevenly(const Tensors &outputs, const at::Tensor &input,
				const AllgatherOptions &options)
	{
		Unlocked unlocked;
		std::vector<WorkPtr> works;
		BroadcastOptions how;

		how.timeout = options.timeout;
		how.asyncOp = options.asyncOp;
		{
			c10::InferenceMode all_tensors;

			outputs[rank_].copy_(input.view_as(outputs[rank_]));
		}
		for (how.rootRank = 0; how.rootRank < size_; how.rootRank++) {
			Tensors part{outputs[how.rootRank]};

			works.push_back(broadcast(part, how));
		}
		return after(c10::make_intrusive<TogetherWork>(rank_, std::move(works)), outputs, [] {});
	}

	/* Whether the network carries a collective: decided by its size, which is equal on all workers. */
	template <typename Data> bool carries(const char *collective, const Data &data) const
	{
		return script_ && script_->carries(collective, size_of(data));
	}

	/* Makes a work, and starts it by `start`. */
	template <typename Start>
	WorkPtr begun(OpType type, const char *title, int64_t size_bytes, const Tensors &result, int64_t kind,
		      Start start)
	{
		Unlocked unlocked;
		uint64_t number = circuits_ ? circuits_->begin(kind_now(), size_bytes) : 0;
		auto work = c10::make_intrusive<SumWork>(rank_, type, title, result,
							 watched(size_bytes, kind));

		tell_end(work, number);
		summed_++;
		start(work);
		Course::see_backward(course_);
		return coalesced_.kept(work);
	}

	/* Carries a collective of the vectors that `made` makes. `counted_bytes`: see Batch. */
	template <typename Made>
	WorkPtr carried(OpType type, const char *title, int64_t size_bytes, const Tensors &result, double limit_s,
			int64_t kind, Made made, int64_t counted_bytes = -1)
	{
		return begun(type, title, size_bytes, result, kind, [&](const SumWorkPtr &work) {
			line_->require_open();
			if (kind == COURSE_SUMMED)
				script_->before_sum();
			auto started_s = Line::now_s();
			c10::InferenceMode all_tensors; /* for access to tensors made in inference mode */

			line_->carry(work, made(), started_s, limit_s, counted_bytes);
		});
	}

	template <typename Data, typename Collective> WorkPtr seen(const Data &data, Collective collective)
	{
		Unlocked unlocked;
		int64_t size_bytes = size_of(data);

		if (order_)
			order_->require_same();
		uint64_t number = circuits_ ? circuits_->begin(kind_now(), size_bytes) : 0;
		auto work = collective(); /* a call that gloo refuses is not one that others must make */

		tell_end(work, number);

		record(work);
		count(size_bytes);
		if (!course_ && !order_)
			return coalesced_.kept(work);
		try {
			auto its = watched(size_bytes, COURSE_BESIDE);

			return coalesced_.kept(c10::make_intrusive<SeenWork>(rank_, work, std::move(its)));
		} catch (...) {
			std::lock_guard<std::mutex> lock(mutex_);

			orphans_.push_back(work);
			throw;
		}
	}

	static int64_t kind_now() { return (int64_t)(Said::now().what & ((1 << CALL_OPERATION_SHIFT) - 1)); }

	/* Reports the end of a call's work. */
	void tell_end(const WorkPtr &work, uint64_t number) const
	{
		if (number)
			work->getFuture()->addCallback(
				[circuits = circuits_, number](c10::ivalue::Future &) {
					circuits->end(number);
				});
	}

	WorkPtr told_by_wait(WorkPtr work, uint64_t number) const
	{
		if (!number)
			return work;
		return c10::make_intrusive<PairWork>(rank_, std::move(work), circuits_, number);
	}

	Watched watched(int64_t size_bytes, int64_t kind)
	{
		uint64_t call = order_ ? order_->ask(Said::now()) : 0;

		return {course_, order_, course_ ? course_->ask(size_bytes, kind) : 0, call};
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
	ScriptPtr script_; /* this and the next two are null if gloo alone serves the group */
	LinePtr line_;
	CoursePtr course_;
	Coalesced coalesced_;
	std::atomic<uint64_t> summed_{0}; /* sums by the job's reducer */
	TallyPtr tally_;
	std::mutex mutex_;
	std::vector<WorkPtr> orphans_; /* under way on the script's tensors when calls were found to differ */
	OrderPtr order_; /* null for a group that torch split off */
	CallCircuitsPtr circuits_; /* null unless a policy asks for circuits */
};

} // namespace inc

PYBIND11_MODULE(_backend, module)
{
	using namespace inc;

	py::module_::import("torch._C._distributed_c10d");
	py::class_<Tally, TallyPtr>(module, "Tally").def(py::init<>()).def_property_readonly(
		"size_bytes", [](const Tally &tally) { return tally.size_bytes.load(); });
	py::class_<SumWork, Work, c10::intrusive_ptr<SumWork>>(module, "SumWork")
		.def_property_readonly("outcomes",
				       [](SumWork &work) {
					       py::list outcomes;

					       for (const auto &heard : work.heard())
						       outcomes.append(heard->outcome());
					       return outcomes;
				       })
		.def(
			"add",
			[](SumWork &work, const py::object &outcome) {
				work.add(std::make_shared<Heard>(Heard::of(outcome)));
			},
			py::arg("outcome"))
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
	py::class_<Record, std::shared_ptr<Record>>(module, "Record")
		.def(py::init<>())
		.def(
			"add",
			[](Record &record, const py::object &outcome) {
				record.add(std::make_shared<Heard>(Heard::of(outcome)));
			},
			py::arg("outcome"))
		.def_property_readonly("sums", &Record::sums)
		.def_property_readonly("degraded", &Record::degraded)
		.def_property_readonly("fewest", &Record::fewest)
		.def_property_readonly("last", &Record::last)
		.def("summary", &Record::summary);
	py::class_<Spans>(module, "Spans")
		.def(py::init<size_t>(), py::arg("most") = ROWS_MOST)
		.def("add", &Spans::add, py::arg("start_s"), py::arg("end_s"), py::arg("size_bytes"))
		.def("summary", &Spans::summary);
	py::class_<Buffers, std::shared_ptr<Buffers>>(module, "Buffers")
		.def(py::init<>())
		.def("take", &Buffers::take, py::arg("elements"))
		.def("give", &Buffers::give, py::arg("vector"));
	py::class_<Lost>(module, "Lost")
		.def(py::init<at::Tensor>(), py::arg("vector"))
		.def("__enter__", &Lost::begin)
		.def("__exit__", [](Lost &, const py::args &) { Lost::end(); });
	py::class_<Vector, VectorPtr>(module, "Vector")
		.def_readonly("lanes", &Vector::lanes)
		.def_readonly("limit_s", &Vector::limit_s)
		.def_readonly("event", &Vector::event)
		.def_readonly("detail", &Vector::detail)
		.def_property_readonly("first_contributors",
				       [](const Vector &vector) { return vector.contributors[0]; })
		.def_property_readonly("silent_s",
				       [](const Vector &vector) { return (double)vector.silent_ns / 1e9; })
		.def(
			"settle_by",
			[](Vector &vector, const BackendPtr &gloo) {
				vector.by_gloo(*gloo)->wait();
				vector.is_exact = true;
			},
			py::arg("gloo"), py::call_guard<py::gil_scoped_release>())
		.def(
			"fail", [](Vector &vector, std::string text) { vector.error = std::move(text); },
			py::arg("text"));
	py::class_<Line, LinePtr>(module, "Line")
		.def(py::init<uint32_t, uint64_t>(), py::arg("workers"), py::arg("summed_bytes"))
		.def("sum_by", &Line::sum_by, py::arg("handle"), py::arg("submit"), py::arg("run"),
		     py::arg("lanes"))
		.def("open", &Line::open)
		.def("close", &Line::close)
		.def("abandon", &Line::abandon, py::call_guard<py::gil_scoped_release>())
		.def("require_open", &Line::require_open)
		.def("__enter__", &Line::lock, py::call_guard<py::gil_scoped_release>())
		.def("__exit__", [](Line &line, const py::args &) { line.unlock(); })
		.def("put", &Line::put, py::arg("task"))
		.def("next", &Line::next)
		.def("stop", &Line::stop, py::arg("why"))
		.def("count", &Line::count, py::arg("start_s"), py::arg("size_bytes"))
		.def_property_readonly("carried_bytes", &Line::carried_bytes)
		.def_property_readonly("replaced_bytes", &Line::replaced_bytes)
		.def_readonly("record", &Line::record)
		.def_readonly("buffers", &Line::buffers)
		.def("spans", [](const Line &line) { return line.spans.summary(); });
	py::class_<Course, CoursePtr>(module, "Course")
		.def(py::init<uint64_t, uint64_t, std::shared_ptr<Timeline>>(), py::arg("asked"),
		     py::arg("waits_for"), py::arg("timeline"))
		.def("ask", &Course::ask, py::arg("size_bytes"), py::arg("kind"))
		.def("is_there", &Course::is_there, py::arg("number"))
		.def("wait", &Course::wait, py::arg("number"))
		.def("resume", &Course::resume, py::arg("number"), py::arg("in_vain") = false)
		.def_property_readonly("last", &Course::last)
		.def("leave_board", &Course::leave_board)
		.def("see_backward", &Course::see_backward, py::call_guard<py::gil_scoped_release>());
	py::class_<Order, OrderPtr>(module, "Order")
		.def(py::init<uint64_t, std::vector<int>, int, uint64_t, py::object>(), py::arg("tables"),
		     py::arg("ranks"), py::arg("member"), py::arg("group"), py::arg("why"))
		.def(
			"ask", [](Order &order, uint64_t what, uint64_t elements) {
				return order.ask({what, elements});
			},
			py::arg("what"), py::arg("elements"), py::call_guard<py::gil_scoped_release>())
		.def("check", &Order::check, py::call_guard<py::gil_scoped_release>());
	py::class_<IncBackend, Backend, c10::intrusive_ptr<IncBackend>> backend(module, "IncBackend");
	backend.def(py::init([](BackendPtr gloo, const py::object &sums, TallyPtr tally, OrderPtr order) {
			    return sums.is_none() ? c10::make_intrusive<IncBackend>(
							    std::move(gloo), std::move(tally),
							    std::move(order))
						  : c10::make_intrusive<IncBackend>(
							    std::move(gloo), sums, std::move(tally),
							    std::move(order));
		    }),
		    py::arg("gloo"), py::arg("sums"), py::arg("tally") = TallyPtr(),
		    py::arg("order") = OrderPtr());
	backend.def_property_readonly("options", &IncBackend::getBackendOptions)
		.def("ask_for_circuits", &IncBackend::ask_for_circuits, py::arg("before"), py::arg("fd"))
		.def("_set_default_timeout", &IncBackend::setTimeout, py::arg("timeout"),
		     py::call_guard<py::gil_scoped_release>());
	module.def("by_gloo_bytes", [] { return by_gloo_bytes.load(); });
	module.def(
		"drain", [](double seconds) { return Completions::all().drain(seconds); },
		py::arg("seconds"), py::call_guard<py::gil_scoped_release>());
}
