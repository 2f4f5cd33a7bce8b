"""What is timed: the learner's round in several implementations, and its peers.

A contender makes a job for a case; a job plays its rounds once and gives seconds a round.
"""
