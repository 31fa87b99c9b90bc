"""Which full pages of computed tokens exist, by the ids that lead to them: a trie of pages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class CachedPage:
    """A page whose every slot is computed, reachable by the ids from the first token on.

    A page is found by walking from the root and comparing ids at each step, so two prefixes are
    the same only when all their ids are: there is no digest that could collide.

    Attributes:
        page: The page. -1 in the root, which holds no tokens.
        token_ids: The ids it holds, ``page_size`` of them.
        parent: The page before it; None in the root.
        children: The pages that continue it, by their ids.
    """

    page: int
    token_ids: tuple[int, ...]
    parent: "CachedPage | None"
    children: dict[tuple[int, ...], "CachedPage"] = field(default_factory=dict)


class PrefixCache:
    """The trie. It knows content only; who uses a page is in the books of `KVCache`."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._root = CachedPage(page=-1, token_ids=(), parent=None)
        self._by_page: dict[int, CachedPage] = {}

    def __contains__(self, page: int) -> bool:
        return page in self._by_page

    def find(
        self, path: Sequence[CachedPage], token_ids: Sequence[int], num_tokens: int
    ) -> list[CachedPage]:
        """Return the pages that continue a path, as far as ``token_ids[:num_tokens]`` is cached."""
        found: list[CachedPage] = []
        parent = path[-1] if path else self._root
        for index in range(len(path), num_tokens // self._page_size):
            node = parent.children.get(self._ids_of_page(token_ids, index))
            if node is None:
                break
            found.append(node)
            parent = node
        return found

    def add(self, path: Sequence[CachedPage], token_ids: Sequence[int], page: int) -> CachedPage:
        """Return the entry that continues a path: one of ``page``, or another's of equal ids."""
        parent = path[-1] if path else self._root
        ids = self._ids_of_page(token_ids, len(path))
        node = parent.children.get(ids)
        if node is None:
            node = CachedPage(page=page, token_ids=ids, parent=parent)
            parent.children[ids] = node
            self._by_page[page] = node
        return node

    def remove(self, page: int) -> None:
        """Forget a page that no cached page continues."""
        node = self._by_page.pop(page)
        if node.parent is not None:
            del node.parent.children[node.token_ids]

    def links(self) -> Iterator[tuple[int, int]]:
        """Yield every pair of a cached page and one that continues it."""
        for node in self._by_page.values():
            for child in node.children.values():
                yield node.page, child.page

    def _ids_of_page(self, token_ids: Sequence[int], index: int) -> tuple[int, ...]:
        return tuple(token_ids[index * self._page_size : (index + 1) * self._page_size])
