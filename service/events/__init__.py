"""Events: every change of state, as pages and as a stream."""
