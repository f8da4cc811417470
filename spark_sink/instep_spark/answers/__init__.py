"""Ready answers: defined once by derivations and generated for each engine (L6)."""
