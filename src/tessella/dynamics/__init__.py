"""How the models of the papers move under gradient descent."""
