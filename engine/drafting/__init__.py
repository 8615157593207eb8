"""Drafts: tokens guessed ahead of the model, which one step then verifies together."""
