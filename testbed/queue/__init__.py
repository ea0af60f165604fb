"""The queue of jobs, and the policy that decides in each time slot which of them start (docs/scheduling.md).
testbed/jobs/, below, runs each job.
"""
