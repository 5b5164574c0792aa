"""Attacks on what stands around a candidate, each with a control that succeeds without the defence: `make attack`."""
