"""A trained model as a folder that needs no stacksl: ONNX, tokenizer, `use.py`, card, MLflow."""
