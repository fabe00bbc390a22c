"""The methods that the top-k paper compares with, as estimators: TopPush, recall@k and Wsabie.

One-vs-all SVMs are `widemargin.OneVsAllClassifier`.
"""

from widemargin.rivals.recall_at_k import RecallAtK
from widemargin.rivals.top_push import TopPush
from widemargin.rivals.wsabie import Wsabie

__all__ = ["RecallAtK", "TopPush", "Wsabie"]
