"""Models as labelers, by the chat-completions protocol of OpenAI."""
