"""Texts: mails, reviews, notes, requests, and columns of such texts in tables."""
