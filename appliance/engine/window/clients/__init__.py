"""Connected clients, and the broker's questions to them."""
