"""Events of a networked study as sentences for people: what happened, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SENTENCES = {
    "session": "{study}: a session for {purpose} is being set up",
    "seated": "the session is set up; rounds may come",
    "answered": "{attempts} attempts answered so far; epsilon of this study {epsilon}",
    "refused": "refused to answer ({why}): {said}",
    "waiting": "waiting for {parties}; start hubbub join there, or wait",
    "open": "session for {purpose} set up among {parties} parties in {seconds:.1f} s",
    "missing": "{whom} did not answer within {deadline:g} s: {then}",
    "declined": "{whom} refuses: {reason}",
    "attempt": "round {round}: attempt {attempt} was aborted; {then}",
    "list": "list {number} of {records} tokens is mixed: {seconds:.1f} s",
    "complaint": "{whom} complains about the list; it is opened to see who lied",
    "step": "step {step} of {steps}: epsilon {epsilon:.3f}, {seconds:.2f} s",
    "closed": "{study} is done; the model is in {model}",
    "resumed": "going on after step {step}",
    "connected": "connected to the relay",
    "unconnected": "not connected: {why}",
    "relay": "{said}",
    "left": "the aggregator has ended; waiting for it to serve again",
    "silent": "nothing was heard of the aggregator for {seconds:.0f} s",
    "lost": "round {round}: {said}; a new session is set up",
    "version": "{whom}: {said}; install the same everywhere",
    "garbled": "from {whom}, nothing that can be used: {said}",
    "stopped": "stopped: {said}",
}


def sentence(event: str, values: Mapping[str, Any]) -> str:
    """An event in one line."""
    pattern = _SENTENCES.get(event)
    try:
        return pattern.format(**values) if pattern else f"{event}: {_listed(values)}"
    except (KeyError, ValueError, TypeError):
        return f"{event}: {_listed(values)}"


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
