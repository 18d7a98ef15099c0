"""What people use: commands, drafting a study, and what is shown of plans and runs."""
