"""Programs as functions of C."""
