/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that run callbacks for the torch backend. Uses neither Python nor torch. */
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace inc {

/*
 * Threads that complete futures. A callback may block on a later sum, so that one thread is always free.
 * Never destroyed, because a callback may still run when the process ends.
 */
class Completions {
  public:
	static Completions &all()
	{
		static auto *completions = new Completions;

		return *completions;
	}

	void put(std::function<void()> task)
	{
		std::lock_guard<std::mutex> lock(mutex_);

		tasks_.push_back(std::move(task));
		if (tasks_.size() > idle_) {
			idle_++;
			std::thread([this] { run(); }).detach();
		}
		more_.notify_one();
	}

	/* Waits until all tasks have ended. Returns whether they did within the time. */
	bool drain(double seconds)
	{
		std::unique_lock<std::mutex> lock(mutex_);

		return ended_.wait_for(lock, std::chrono::duration<double>(seconds),
				       [this] { return tasks_.empty() && !busy_; });
	}

  private:
	static constexpr size_t KEPT = 2; /* threads that wait for work; further ones end */

	void run()
	{
		std::unique_lock<std::mutex> lock(mutex_);

		pthread_setname_np(pthread_self(), "inc-completion");
		for (;;) {
			more_.wait(lock, [this] { return !tasks_.empty() || idle_ > KEPT; });
			idle_--;
			if (tasks_.empty())
				return;
			auto task = std::move(tasks_.front());

			tasks_.pop_front();
			busy_++;
			lock.unlock();
			task();
			task = nullptr;
			lock.lock();
			busy_--;
			idle_++;
			ended_.notify_all();
		}
	}

	std::mutex mutex_;
	std::condition_variable more_, ended_;
	std::deque<std::function<void()>> tasks_;
	size_t idle_ = 0, busy_ = 0; /* threads; a starting one counts as idle */
};

} // namespace inc
