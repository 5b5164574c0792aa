"""Attack everything around a candidate, each time with a control that succeeds without the defence: `make attack`."""
