"""Language models as the policies of a team. Needs the extra `lm`; torch is imported nowhere else in Podium."""
