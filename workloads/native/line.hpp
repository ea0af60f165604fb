/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has asked to be summed, one after the other. */
#pragma once

#include <c10/core/InferenceMode.h>

#include <linux/types.h>

#include <condition_variable>
#include <deque>

#include "buffers.hpp"
#include "heard.hpp"
#include "staging.hpp"
#include "works.hpp"

namespace inc {

#include "contract.h"

using SumWorkPtr = c10::intrusive_ptr<SumWork>;

/* Where a sum's lost part is to be written, for the call that this thread is about to make (workloads/feedback.py). */
class Lost {
  public:
	explicit Lost(at::Tensor vector) : vector_(std::move(vector)) {}

	void begin() const { wanted() = vector_; }
	static void end() { wanted().reset(); }

	static float *of(const at::Tensor &tensor)
	{
		bool is_its = wanted() && wanted()->numel() == tensor.numel();

		return is_its ? wanted()->data_ptr<float>() : nullptr;
	}

  private:
	static std::optional<at::Tensor> &wanted()
	{
		static thread_local std::optional<at::Tensor> its;

		return its;
	}

	at::Tensor vector_;
};

/* The compiled endpoint (endpoint.c), which Python opened: no lock of the interpreter's is needed to sum. */
struct Endpoint {
	using Submit = int64_t (*)(void *, float *, uint64_t, uint32_t, uint64_t, uint64_t, uint32_t *, float *);
	using Run = int (*)(void *, uint64_t *, uint32_t *, int64_t *);

	void *handle;
	Submit submit;
	Run run;
	uint64_t lanes;
};

/* The sum of one or more tensors that a script asked for by one call. */
struct Batch {
	SumWorkPtr work;
	double started_s;
	int64_t size_bytes;
	size_t left;
	std::string error; /* of the first that failed */
};

/* A vector under way. Where the network has no sum of it, Python says what becomes of it. */
struct Vector {
	std::shared_ptr<Batch> batch;
	at::Tensor tensor, flat;
	bool average;
	double limit_s;
	int64_t number = 0;
	std::vector<uint32_t> contributors{};
	/* as endpoint_run left them */
	int event = EVENT_IDLE;
	uint32_t detail = 0;
	int64_t silent_ns = 0;
	/* as Python said: that gloo's sum is in `flat`, or that there is none */
	bool is_exact = false;
	std::string error{};
};

using VectorPtr = std::shared_ptr<Vector>;

/*
 * The sums of a process, in the order in which all workers ask for them, and the thread's part of them (`next`).
 * Those that a compiled endpoint carries are summed without Python; what else is to be done in that order is a
 * task of Python's.
 */
class Line {
  public:
	/* `summed_bytes`: the address of the board's count of what this worker has summed; 0: nobody counts. */
	Line(uint32_t workers, uint64_t summed_bytes)
	    : workers_(workers), summed_bytes_(reinterpret_cast<uint64_t *>(summed_bytes))
	{
	}

	void sum_by(uint64_t handle, uint64_t submit, uint64_t run, uint64_t lanes)
	{
		endpoint_ = {reinterpret_cast<void *>(handle), reinterpret_cast<Endpoint::Submit>(submit),
			     reinterpret_cast<Endpoint::Run>(run), lanes};
	}

	/* Whether it sums by itself. */
	bool has_endpoint() const { return endpoint_.handle; }

	void open()
	{
		std::lock_guard<std::mutex> lock(door_);

		is_open_ = true;
	}

	/* No more is taken; `next` ends after what there is. */
	void close()
	{
		std::lock_guard<std::mutex> lock(door_);

		is_open_ = false;
		more_.notify_all();
	}

	/* Nobody waits for the thread any more: it must not come back to an interpreter that ends. */
	void abandon() { is_abandoned_ = true; }

	void require_open()
	{
		std::lock_guard<std::mutex> lock(door_);

		require_open_door();
	}

	/* Vectors are submitted, and waited for, in one order. */
	void lock() { order_.lock(); }
	void unlock() { order_.unlock(); }

	/* Has the thread do this after what it was given before: nobody would wait for it after the end. */
	void put(py::object task)
	{
		std::lock_guard<std::mutex> lock(door_);

		require_open_door();
		items_.push_back({std::move(task), nullptr});
		more_.notify_all();
	}

	/*
	 * Begins a sum, on the caller's thread, so that vectors follow each other without a pause. Where one is
	 * refused, those before it are taken all the same, and the next call finds nothing of this one.
	 */
	void sum(const SumWorkPtr &work, const Tensors &tensors, bool average, double limit_s)
	{
		c10::InferenceMode all_tensors; /* may be read and written, such of inference too */
		auto batch = std::make_shared<Batch>(Batch{work, now_s(), 0, tensors.size(), {}});
		Tensors flats;

		for (const auto &tensor : tensors) {
			flats.push_back(flat(tensor));
			batch->size_bytes += (int64_t)tensor.nbytes();
		}
		std::lock_guard<std::mutex> lock(order_);

		for (size_t i = 0; i < tensors.size(); i++)
			submit(std::make_shared<Vector>(Vector{.batch = batch, .tensor = tensors[i],
							       .flat = flats[i], .average = average,
							       .limit_s = limit_s}));
	}

	/*
	 * Sums what there is, until something is Python's to do: returns a task, a vector that has no sum, or
	 * none yet, or None at the end. Of such a vector Python says so (settle_exactly, fail), or waits on.
	 */
	py::object next()
	{
		VectorPtr unsettled;
		py::object task;
		{
			py::gil_scoped_release unlocked;
			std::unique_lock<std::mutex> lock(door_);

			for (;;) {
				more_.wait(lock, [this] { return !items_.empty() || !is_open_; });
				if (items_.empty())
					break;
				if (!items_.front().vector) {
					task = std::move(items_.front().task);
					items_.pop_front();
					break;
				}
				auto vector = items_.front().vector;

				lock.unlock();
				if (!is_settled(*vector)) {
					unsettled = vector;
					break;
				}
				lock.lock();
				items_.pop_front();
				lock.unlock();
				take(*vector);
				vector = nullptr;
				lock.lock();
			}
			while (is_abandoned_)
				std::this_thread::sleep_for(std::chrono::hours(1));
		}
		if (unsettled)
			return py::cast(unsettled);
		return task ? task : py::none();
	}

	/* No vector is summed any more, for this reason. Called by the thread. */
	void stop(const std::string &why)
	{
		std::lock_guard<std::mutex> lock(door_);

		stopped_by_ = why;
	}

	/* Counts sums of so many bytes, which took from `start` until now. */
	void count(double start_s, int64_t size_bytes)
	{
		spans.add(start_s, now_s(), size_bytes);
		if (summed_bytes_)
			*summed_bytes_ += (uint64_t)size_bytes;
	}

	/* What it counts by itself, in bytes of lanes: by the endpoint, and by gloo in its place. */
	int64_t carried_bytes() const { return carried_bytes_; }
	int64_t replaced_bytes() const { return replaced_bytes_; }

	std::shared_ptr<Record> record = std::make_shared<Record>();
	std::shared_ptr<Buffers> buffers = std::make_shared<Buffers>();
	Spans spans;

	/* As time.perf_counter. */
	static double now_s() { return (double)now_ns() / 1e9; }

  private:
	static constexpr size_t MOST_UNDER_WAY = 96; /* of MAX_OPS; Python's have room beside them */

	struct Item {
		py::object task;
		VectorPtr vector;
	};

	void require_open_door() const
	{
		if (!is_open_)
			throw std::runtime_error("the group was destroyed, and sums no more");
	}

	/* The values of a tensor as binary32 in one piece: itself, or a buffer. */
	at::Tensor flat(const at::Tensor &tensor)
	{
		if (tensor.scalar_type() == at::kFloat && is_dense(tensor))
			return tensor;
		auto flat = buffers->take(tensor.numel());

		flat.view(tensor.sizes()).copy_(tensor);
		return flat;
	}

	void submit(const VectorPtr &vector)
	{
		auto elements = (uint64_t)vector->flat.numel();
		auto fragments = (elements + endpoint_.lanes - 1) / endpoint_.lanes;
		std::unique_lock<std::mutex> lock(door_);

		less_.wait(lock, [this] { return under_way_ < MOST_UNDER_WAY || !is_open_; });
		require_open_door();
		under_way_++;
		vector->contributors.resize(std::max<uint64_t>(1, fragments));
		if (stopped_by_.empty())
			vector->number = endpoint_.submit(
				endpoint_.handle, (float *)vector->flat.data_ptr(), elements, VECTOR_FLOATS, 0,
				sizeof(float) * elements, vector->contributors.data(), Lost::of(vector->flat));
		if (vector->number < 0) {
			under_way_--;
			throw std::runtime_error("the endpoint takes no more vectors");
		}
		items_.push_back({py::object(), vector});
		more_.notify_all();
	}

	/* Whether it is known what became of it. Else `event` says what Python is to see to. */
	bool is_settled(Vector &vector)
	{
		uint64_t number;

		if (vector.is_exact || !vector.error.empty())
			return true;
		if (!stopped_by_.empty()) {
			vector.error = stopped_by_;
			return true;
		}
		vector.event = endpoint_.run(endpoint_.handle, &number, &vector.detail, &vector.silent_ns);
		TORCH_INTERNAL_ASSERT(vector.event != EVENT_IDLE);
		TORCH_INTERNAL_ASSERT(vector.event == EVENT_QUIET || (int64_t)number == vector.number);
		return vector.event == EVENT_DONE;
	}

	/* Puts a sum where it belongs, or says that there is none. */
	void take(Vector &vector)
	{
		c10::InferenceMode all_tensors;
		auto &batch = *vector.batch;

		if (vector.error.empty()) {
			auto heard = std::make_shared<Heard>(
				vector.is_exact ? Heard::whole(workers_)
						: Heard{workers_, endpoint_.lanes, std::move(vector.contributors)});

			(vector.is_exact ? replaced_bytes_ : carried_bytes_) +=
				(int64_t)sizeof(float) * vector.flat.numel();
			record->add(heard);
			batch.work->add(heard);
			if (vector.average) /* a sum that lacks workers is as large as that of all */
				vector.flat.div_((double)workers_);
			if (!vector.flat.is_same(vector.tensor))
				vector.tensor.copy_(vector.flat.view(vector.tensor.sizes()));
		} else if (batch.error.empty()) {
			batch.error = vector.error;
		}
		if (!vector.flat.is_same(vector.tensor))
			buffers->give(vector.flat);
		{
			std::lock_guard<std::mutex> lock(door_);

			under_way_--;
			less_.notify_all();
		}
		if (--batch.left)
			return;
		if (batch.error.empty()) {
			count(batch.started_s, batch.size_bytes);
			batch.work->done();
		} else {
			batch.work->fail(batch.error);
		}
	}

	uint32_t workers_;
	uint64_t *summed_bytes_;
	Endpoint endpoint_{};
	std::mutex order_, door_;
	std::condition_variable more_, less_;
	std::deque<Item> items_;
	bool is_open_ = false;
	std::atomic<bool> is_abandoned_{false};
	size_t under_way_ = 0;
	std::string stopped_by_;
	std::atomic<int64_t> carried_bytes_{0}, replaced_bytes_{0};
};

using LinePtr = std::shared_ptr<Line>;

} // namespace inc
