"""Reference tasks as pure functions: Countdown, arithmetic and calculator calls (no torch in here)."""
