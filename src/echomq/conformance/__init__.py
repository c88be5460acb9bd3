"""The proof of the protocol, on a live server: `python -m echomq.conformance URL`.

- `scenarios` are named stories with a known end, each pitfall of the design among them;
- `machine` plays everything at once against a live queue, with `model` beside it (needs Hypothesis);
- `invariants` is what is always true of a queue's keys, to be asked of any queue at rest;
- `driver` and `snapshot` are what they are made of.
"""
