"""Fitting the table that the strategy `adaptive` chooses by."""
