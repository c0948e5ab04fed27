"""Connected clients, and questions that the broker asks them."""
