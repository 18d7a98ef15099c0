"""scikit-learn estimators: the whole protocol behind `fit` and `predict`.

They are adapters and know nothing of their own: records go to `hubbub.fit`, errors come back as the
`ValueError` that scikit-learn's tools expect. They need the extra `sklearn`.
"""
