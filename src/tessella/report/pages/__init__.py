"""What each claim's page shows, one module a claim, named as the claim's own."""
