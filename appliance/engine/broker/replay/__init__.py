"""Dead letters sent again: jobs, their journal, and the thread that works them off."""
