"""Language modelling of enwik8 or any other text: where it is found, how it is read, trained on and scored."""
