"""Minimising a smooth loss plus the nuclear norm: proximal steps, factored descent and duality gaps."""
