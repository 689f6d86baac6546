"""Accounts in whole cents: nothing is lost by rounding."""
