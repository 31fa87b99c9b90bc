"""The OpenAI dialect: requests in, engine requests out, tokens in, JSON out."""
