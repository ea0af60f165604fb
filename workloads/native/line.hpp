/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a process's sums. */
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>

#include "spans.hpp"
#include "vectors.hpp"

namespace inc {

/* The compiled endpoint (endpoint.c), opened by Python. Sums by it need no interpreter lock. */
struct Endpoint {
	using Submit = int64_t (*)(void *, float *, uint64_t, uint32_t, uint64_t, uint64_t, uint32_t *, float *);
	using Run = int (*)(void *, uint64_t *, uint32_t *, int64_t *);

	void *handle;
	Submit submit;
	Run run;
	uint64_t lanes;
};

/*
 * The sums of a process, in the order in which all workers ask for them, and the loop of the thread that
 * carries them out (`next`). A compiled endpoint sums without Python; other work in this order is a Python
 * task.
 */
class Line {
  public:
	/*
	 * `summed_bytes`: the address of the board's count of the bytes that this worker has summed; 0: none.
	 */
	Line(uint32_t workers, uint64_t summed_bytes)
	    : workers_(workers), summed_bytes_(reinterpret_cast<uint64_t *>(summed_bytes))
	{
	}

	void sum_by(uint64_t handle, uint64_t submit, uint64_t run, uint64_t lanes)
	{
		endpoint_ = {reinterpret_cast<void *>(handle), reinterpret_cast<Endpoint::Submit>(submit),
			     reinterpret_cast<Endpoint::Run>(run), lanes};
	}

	int workers() const { return (int)workers_; }

	/* Whether sums go by a compiled endpoint. */
	bool has_endpoint() const { return endpoint_.handle; }

	void open()
	{
		std::lock_guard<std::mutex> lock(door_);

		is_open_ = true;
	}

	/* Accepts no more; `next` ends after what is queued. */
	void close()
	{
		std::lock_guard<std::mutex> lock(door_);

		is_open_ = false;
		more_.notify_all();
		less_.notify_all();
	}

	/*
	 * Tells the thread that no one waits for it any more: it must not enter an interpreter that is
	 * ending. If it is in Python, or about to be, this waits up to ABANDONED for it to come back.
	 */
	void abandon()
	{
		std::unique_lock<std::mutex> lock(door_);

		is_abandoned_ = true;
		back_.wait_for(lock, ABANDONED, [this] { return !is_away_; });
	}

	void require_open()
	{
		std::lock_guard<std::mutex> lock(door_);

		require_open_door();
	}

	/* Held while vectors are submitted and queued, so that both have one order. */
	void lock() { order_.lock(); }
	void unlock() { order_.unlock(); }

	/* Queues a Python task for the thread. Throws after `close`, when no one would wait for it. */
	void put(py::object task)
	{
		std::lock_guard<std::mutex> lock(door_);

		require_open_door();
		items_.push_back({std::move(task), nullptr, {}});
		more_.notify_all();
	}

	/*
	 * Queues a work that the thread completes after everything before it. Returns false if nothing is
	 * queued or under way.
	 */
	bool ends(const SumWorkPtr &fence)
	{
		std::lock_guard<std::mutex> lock(door_);

		if (is_idle_ && items_.empty() && !under_way_)
			return false;
		items_.push_back({py::object(), nullptr, fence});
		more_.notify_all();
		return true;
	}

	/*
	 * Starts a collective of these vectors on the caller's thread, so that they follow each other without
	 * a pause. If one is refused, those before it are still completed, and the next call finds none of
	 * this one's under way.
	 */
	void carry(const SumWorkPtr &work, std::vector<Vector> vectors, double started_s, double limit_s,
		   int64_t counted_bytes)
	{
		auto batch = std::make_shared<Batch>(Batch{work, started_s, counted_bytes, vectors.size(), {}});
		std::lock_guard<std::mutex> lock(order_);

		for (auto &vector : vectors) {
			vector.batch = batch;
			vector.limit_s = limit_s;
			submit(std::make_shared<Vector>(std::move(vector)));
		}
	}

	/*
	 * Carries out what is queued, until Python must act. Returns a task, a vector that has no sum or none
	 * yet, or None at the end. Python settles such a vector (settle_by, fail), or lets it wait on.
	 */
	py::object next()
	{
		VectorPtr unsettled;
		py::object task;
		{
			py::gil_scoped_release unlocked;
			std::unique_lock<std::mutex> lock(door_);

			is_away_ = false;
			back_.notify_all();
			for (;;) {
				is_idle_ = true;
				more_.wait(lock, [this] { return !items_.empty() || !(is_open_ || under_way_); });
				stand_still_if_abandoned(lock);
				if (items_.empty())
					break;
				is_idle_ = false;
				auto vector = items_.front().vector;
				auto fence = std::move(items_.front().fence);

				if (!vector) {
					task = std::move(items_.front().task);
					items_.pop_front();
					if (!fence)
						break;
					lock.unlock();
					fence->done();
					lock.lock();
					continue;
				}
				lock.unlock();
				bool is_over = is_settled(*vector);

				stand_still_if_abandoned(lock);
				if (!is_over) {
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
			if (!lock.owns_lock())
				lock.lock();
			stand_still_if_abandoned(lock);
			is_away_ = true;
		}
		if (unsettled)
			return py::cast(unsettled);
		return task ? task : py::none();
	}

	/* Stops summing, for this reason. Called by the thread. */
	void stop(const std::string &why)
	{
		std::lock_guard<std::mutex> lock(door_);

		stopped_by_ = why;
	}

	/* Counts a call's sums of `size_bytes`, which lasted from `start_s` until now. */
	void count(double start_s, int64_t size_bytes)
	{
		spans.add(start_s, now_s(), size_bytes);
		if (summed_bytes_)
			*summed_bytes_ += (uint64_t)size_bytes;
	}

	/* The bytes of vectors summed by the endpoint, and by gloo in its place. */
	int64_t carried_bytes() const { return carried_bytes_; }
	int64_t replaced_bytes() const { return replaced_bytes_; }

	std::shared_ptr<Record> record = std::make_shared<Record>();
	std::shared_ptr<Buffers> buffers = std::make_shared<Buffers>();
	Spans spans;

	/* The clock of time.perf_counter. */
	static double now_s() { return (double)now_ns() / 1e9; }

  private:
	static constexpr size_t MOST_UNDER_WAY = 96; /* of MAX_OPS; the rest is for Python's vectors */

	static constexpr std::chrono::milliseconds HEEDED{200}; /* between two checks for signals */
	static constexpr std::chrono::seconds ABANDONED{1};

	/* A queued item; has one of these. */
	struct Item {
		py::object task;
		VectorPtr vector;
		SumWorkPtr fence;
	};

	void require_open_door() const
	{
		if (!is_open_)
			throw std::runtime_error("the group was destroyed, and sums no more");
	}

	/* Sleeps forever if the thread is abandoned, without the lock, which others may still need. */
	void stand_still_if_abandoned(std::unique_lock<std::mutex> &lock) const
	{
		if (is_abandoned_ && lock.owns_lock())
			lock.unlock();
		while (is_abandoned_)
			std::this_thread::sleep_for(std::chrono::hours(1));
	}

	/*
	 * Runs signal handlers if the main thread waits here; throws KeyboardInterrupt, or what a script's
	 * handler raises.
	 */
	static void heed_signals()
	{
		py::gil_scoped_acquire locked;

		if (PyErr_CheckSignals())
			throw py::error_already_set();
	}

	/* Submits a vector when there is room. One thread at a time calls this, with `order_` held. */
	void submit(const VectorPtr &vector)
	{
		auto fragments = (vector->lanes + endpoint_.lanes - 1) / endpoint_.lanes;

		vector->contributors.resize(std::max<uint64_t>(1, fragments));
		std::unique_lock<std::mutex> lock(door_);

		while (!less_.wait_for(lock, HEEDED,
				       [this] { return under_way_ < MOST_UNDER_WAY || !is_open_; })) {
			lock.unlock();
			heed_signals();
			lock.lock();
		}
		require_open_door();
		under_way_++; /* keeps the thread from ending before it */
		if (stopped_by_.empty()) {
			lock.unlock();
			vector->number = endpoint_.submit(
				endpoint_.handle, (float *)vector->buffer.data_ptr(), vector->lanes,
				vector->kind, vector->from, vector->until, vector->contributors.data(),
				vector->lost.defined() ? vector->lost.data_ptr<float>() : nullptr);
			lock.lock();
		}
		if (vector->number < 0)
			under_way_--;
		else
			items_.push_back({py::object(), vector, {}});
		more_.notify_all();
		if (vector->number < 0)
			throw std::runtime_error("the endpoint takes no more vectors");
	}

	/*
	 * Runs the endpoint for a vector. Returns whether the vector has a result or an error; if not,
	 * `event` says what Python must handle.
	 */
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
		if (vector.event != EVENT_QUIET &&
		    (vector.event == EVENT_IDLE || (int64_t)number != vector.number)) {
			stop("RuntimeError: the endpoint and its vectors are out of step");
			vector.error = stopped_by_;
		}
		return vector.event == EVENT_DONE || !vector.error.empty();
	}

	void deliver(Vector &vector)
	{
		auto heard = std::make_shared<Heard>(
			vector.is_exact ? Heard::whole(workers_)
					: Heard{workers_, endpoint_.lanes, std::move(vector.contributors)});

		vector.put();
		(vector.is_exact ? replaced_bytes_ : carried_bytes_) += vector.size_bytes;
		if (vector.kind == VECTOR_FLOATS)
			record->add(heard);
		vector.batch->work->add(heard);
	}

	/*
	 * Finishes a vector: delivers its sum or records its error. The last one of a call completes the
	 * call's work.
	 */
	void take(Vector &vector)
	{
		c10::InferenceMode all_tensors;
		auto &batch = *vector.batch;

		if (vector.error.empty())
			try {
				deliver(vector);
			} catch (const c10::Error &error) { /* the thread continues */
				vector.error = std::string("RuntimeError: ") + error.what_without_backtrace();
			} catch (const std::exception &error) {
				vector.error = std::string("RuntimeError: ") + error.what();
			}
		if (batch.error.empty())
			batch.error = vector.error;
		{
			std::lock_guard<std::mutex> lock(door_);

			under_way_--;
		}
		less_.notify_all();
		if (--batch.left)
			return;
		if (!batch.error.empty()) {
			batch.work->fail(batch.error);
			return;
		}
		if (batch.counted_bytes >= 0)
			count(batch.started_s, batch.counted_bytes);
		batch.work->done();
	}

	uint32_t workers_;
	uint64_t *summed_bytes_;
	Endpoint endpoint_{};
	std::mutex order_, door_;
	std::condition_variable more_, less_, back_;
	std::deque<Item> items_;
	bool is_open_ = false, is_idle_ = true; /* idle: the thread waits for items, or there is no thread */
	std::atomic<bool> is_abandoned_{false};
	bool is_away_ = true; /* whether the thread is in Python */
	size_t under_way_ = 0;
	std::string stopped_by_;
	std::atomic<int64_t> carried_bytes_{0}, replaced_bytes_{0};
};

using LinePtr = std::shared_ptr<Line>;

} // namespace inc
