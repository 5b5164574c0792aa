"""Run jobs on KernelBot, the evaluator behind GPU MODE's leaderboards and the MI300 competition.

A worker on the queue `kernelbot.<target>` claims a job, turns its candidate into a submission (`candidate`), waits
for its turn, hands it in and polls (`visit`), and maps the answer to a result (`outcome`). The worker needs no GPU.
"""
