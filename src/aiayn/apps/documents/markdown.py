"""Markdown: its paragraphs, headings, items and cells as parts to translate, everything else as it
is written.

`markdown-it-py` finds the blocks and what is in them. It says in which lines blocks are, but not
where emphasis, links or code begin and end; that is noted here while its rules read them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token as Mark

from aiayn.apps.documents.dialect_blocks import KEPT_BLOCK, add_rules
from aiayn.apps.documents.markup import (
    Checked,
    Edit,
    Part,
    Pieces,
    Reader,
    Token,
    divided,
    escaped_html,
    html_text,
    read_parts,
)

FRONT_MATTER = re.compile(
    r"(?:(---|\+\+\+)[ \t]*\r?\n.*?^(?:\1|\.\.\.)|\{\r?\n[ \t]*\".*?^\})[ \t]*(?:\r?\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
# Of no paragraph
LINE_START = re.compile(
    r"\A(\d{1,9}(?=[.)](?:\s|$))|(?=[-+*](?:\s|$)|#{1,6}(?:\s|$)|>|=+$|-+$|~~~))"
)
# What dialects put into a line. The model does not see boxes of tasks, attributes (`{#id .class}`),
# names of roles (`{ref}`), of emoji and of blocks (`^name`), LaTeX, embedded files, changed words
# (`{~~a~>b~~}`) and code of MDX (`{a + b}`). It sees the words of keys (`++ctrl+c++`), citations
# (`@doe`) and links of wikis, which stay as written, and translates those in `==a==`, `^^a^^`,
# `H~2~O`, `x^2^` and `[a]{.b}`.
DIALECT = re.compile(
    r"^\[[ xX]\](?=\s)"
    r"|(?P<around>(?<![\w=^])(?:==|\^\^)|(?<=\w)[~^](?=\w{1,20}[~^]))"
    r"(?P<marked>[^\s=^~](?:[^=^~\n]{0,200}[^\s=^~])?)(?P=around)(?!(?<=[=^]{2})\w|[=^~])"
    r"|\[(?P<span>[^\[\]\n]{1,200})\](?=\{[#.])\{[^{}\n]{1,200}\}"
    r"|(?P<footnote>\[\^[^\[\]\s]{1,200}\]:?)"
    r"|\{[ \t]{0,9}(?:[#.:]|[\w-]{0,60}=)[^{}\n]{1,200}\}"
    r"|\\[A-Za-z]{2,30}\{[^{}\n]{1,200}\}|(?<=\s)\^[\w-]{1,60}(?=\s*\Z)"
    r"|(?P<seen>\+\+\w{1,20}(?:\+[\w-]{1,20}){1,5}\+\+"
    r"|(?<![\w\\@./:<])-?@(?!(?:include|import)\b)[A-Za-z](?:[\w.:/-]{0,60}\w)?(?![\w.:/-]{0,60}>))"
    r"|(?<![\w:\\]):[a-z][\w+-]{0,40}(?::(?![\w:])|(?=\[))"
    r"|(?P<file>!\[\[[^\[\]\n]{1,200}\]\]|\{~~[^{}\n]{1,200}~~\})|(?P<page>\[\[[^\[\]\n]{1,200}\]\])"
    r"|(?P<code>(?<![\w{$%])\{(?!\{)(?=[^{}\n]{0,200}(?:\w\(|\s[-+*/%?=<>&|]{1,3}\s|`))[^{}\n]{1,200}\}(?!\}))"
)
# A link or a picture in a block of HTML, with its attributes
LINK = re.compile(r"(!?\[[^\[\]\n]{0,200}\]\([^()\n]{1,200}\)(?:\{[^{}\n]{1,200}\})?)")
CONTENTS = re.compile(r"\[\[_?toc_?\]\]", re.IGNORECASE)
ROLE = re.compile(r"\{[A-Za-z][\w:-]{0,60}\}\Z")  # before code
# Lines that begin or end a note, a box, a tab or a formula, hold attributes, a comment, tags of
# templates or options of a box, or stand for a table of contents; and the first line of an alert in
# a quotation (`[!NOTE]`).
DIRECTIVE = re.compile(
    r"[ \t]*(?:!!!|\?\?\?|={3}[+!]?[ \t]+\"|:::|///|\+\+\+|\$\$|\{:|%[ \t%]|\{/\*|\\?\[!\w+\]"
    r"|\{[ \t]{0,9}[#.][^{}\r\n]{1,200}\}\s*\Z"
    r"|@?\[(?i:toc)\]\s*\Z|(?:\{%[^{}%\r\n]{1,100}%\}[ \t]*)+\Z)"
)
# The title in brackets of a box, in which there may be marks
BRACKETS = re.compile(r":{3,}[\w-]+\[[^\n]*(\])\s*\Z")
# Options of a box, in the lines after its first
OPTION = re.compile(r"(?::[\w-]{1,60}:(?=\s)|(?<= {4})[\w-]{1,60}:)[^\n]*\n?")
# A line that begins a note, a tab, a box or an alert: what is before its title, this, and the rest
TITLED = re.compile(
    r"(\s*(?:(?:!!!|\?{3}\+?|={3}[+!]?)[^\"\r\n]*\"|\\?\[!\w+\][-+]?[ \t]*"
    r"|:{3,}[ \t]*(?:\{[^{}\r\n]*\}|[\w-]+)(?:[ \t]+|\[)|/{3,}[ \t]*[\w-]+[ \t]*\|[ \t]*))"
    r"([^\"\[\]{}\r\n]+)(.*)",
    re.DOTALL,
)
# Lines of dialects that stay whole, and are counted: abbreviations, short codes, labels, files to
# include, code of MDX, commands of LaTeX, numbered examples, definitions of links in a paragraph,
# and the lines after the first of a table or a poem of Pandoc.
UNKNOWN = re.compile(
    r"(?:\*\[[^\[\]\n]{1,100}\]:|\{\{[%<]|\([\w.:-]{1,100}\)=[ \t]*\r?$|--8<--"
    r"|<<<[ \t]*@|[!@#$]{1,3}(?i:include|import)\b|@\[(?!(?i:toc)\])[\w -]{1,60}\]\("
    r"|\[![A-Za-z][\w-]{0,30}(?=[ \t\[])[^\]\n]|\.\.[ \t]+[\w-]{1,60}::"
    r"|::[A-Za-z][\w-]{0,60}(?:[\[{]|[ \t]*\r?$)|:{3,9}[ \t]*[\w-]{1,60}[ \t]+[\w-]{1,60}="
    r"|import[ \t]+(?:(?:\w++[ \t]*+,?[ \t]*+)?(?:\{[^{}\n]*\}|\*[ \t]+as[ \t]+\w+)?"
    r"[ \t]*+from[ \t]*+)?['\"]"
    r"|(?:#\.|\(@[\w-]{0,60}\))[ \t]"
    r"|\[(?![\^!])[^\[\]\n]{1,100}\]:[ \t]+\S+(?:[ \t]+[\"'(][^\n]*)?[ \t]*\r?$"
    r"|export[ \t]+(?:const|default)\b|\\[A-Za-z]{2,30}(?:\{[^{}\n]{0,200}\}[\[{]|[ \t]*\r?$)"
    r"|(?P<later>\||\+[-=:+]{3}))[^\n]*\n?",
    re.MULTILINE,
)
# A formula, as Pandoc and GitHub tell it from an amount of money: no blank inside, no letter or
# digit outside of it. Others stand in lines of their own.
FORMULA = re.compile(
    r"(?<![\w$\\])\$(?![\s$])(?:[^\\$\n]|\\.)+?(?<!\s)\$(?![\w$])"
    r"|(?P<bar>\\\\?)\((?=(?:(?!\\\))[^\n]){0,300}?(?:(?<!\\)[_^={}]|\\[A-Za-z]))[^\n]{1,300}?(?P=bar)\)"
    r"|(?P<display>\$\$[^$]+\$\$(?:[ \t]*\([\w:.-]{1,60}\)(?=[ \t]*(?:\n|\Z)))?"
    r"|\\\[(?=[ \t]*\n)[^\[\]]{1,3000}?(?<=\n)[ \t]{0,20}\\\]"
    r"|\\begin\{(?P<name>\w+\*?)\}(?s:.{1,3000}?)\\end\{(?P=name)\})"
)
# A link by a name, which is its words
NAMED = re.compile(r"\[([^\[\]]+)\]\[([^\[\]]*)\]")
# Why lines and blocks stay as they were
IN_DIALECT = "in a dialect of Markdown left untranslated"
WORDS_AS_MARKS = "left unchanged, as words would have become mark-up"
PAIRED = ("link", "em", "strong", "s")
LINE_ENDS = ("softbreak", "hardbreak", "unknown", "option")
UNMARKED = ("text", "text_special", "softbreak")  # tokens that are no mark-up
Rule = Callable[[StateInline, bool], bool]
# Gets what stays as it was, why, and its position in the text
Leave = Callable[[str, str, int], None]


def parse_markdown(text: str, leave: Leave) -> Pieces:
    """Returns the parts of a text, and between them what is kept: with the parts' own marks, they
    are the text.
    """
    front = FRONT_MATTER.match(text)
    start = done = front.end() if front else 0
    lines = re.findall(r"[^\r\n]*(?:\r\n?|\n|\Z)", text[start:])
    starts = list(accumulate(map(len, lines), initial=start))
    pieces: Pieces = [text[:start]]
    parser, definitions = _parser(), {}
    tokens = parser.parse(text[start:], definitions)
    for opening, token in pairwise([Mark("", "", 0), *tokens]):
        if token.type == KEPT_BLOCK and token.map:
            for line in filter(lambda line: lines[line].strip(), range(*token.map)):
                leave("line", IN_DIALECT, starts[line])
        if not token.map or token.type not in ("inline", "html_block"):
            continue
        first, last = token.map
        if token.type == "html_block":
            begin, end = starts[first], starts[last]
            # Tags in lines of their own may be what makes the block one of HTML.
            first += _is_tag(lines[first])
            last -= first < last and _is_tag(lines[last - 1])
            block_pieces = [
                text[begin : starts[first]],
                *read_parts(
                    _html_tokens(text[starts[first] : starts[last]]), html_text, escaped_html
                ),
                text[starts[last] : end],
            ]
        else:
            in_cell = opening.type in ("th_open", "td_open")
            offsets = _offsets(token.content, in_cell, lines[first:last], starts[first:last], done)
            if offsets is None:  # it is written in a way that cannot be found again
                continue
            begin, end = offsets[0], offsets[-1]
            inline_tokens = _inline_tokens(text, token, offsets, leave)
            special = set("\\`*_[]<" + "|" * in_cell)
            units: Pieces = read_parts(inline_tokens, _read, _escape(special, inline_tokens))
            before = text[max(starts[first], begin - 9) : begin]
            if not (in_cell and before.strip()) and not opening.markup.startswith("#"):
                units = [
                    Checked([unit], _finish, unit.raw) if isinstance(unit, Part) else unit
                    for unit in units
                ]
            as_it_was = text[begin:end]
            leave_block = partial(leave, "block", WORDS_AS_MARKS, begin)
            is_underlined = opening.markup == "-"
            block = Block(parser, definitions, as_it_was, is_underlined, leave_block)
            block_pieces = [Checked(units, block.accepted, as_it_was)]
        pieces += [text[done:begin], *block_pieces]
        done = end
    return [*pieces, text[done:]]


def _is_tag(line: str) -> bool:
    types = [token_type for token_type, *_ in Reader(line.strip()).tokens]
    return types in (["open", "text"], ["close", "text"])


class Block(NamedTuple):
    """A paragraph, a heading or a cell as it was, and what its marks are read with."""

    parser: MarkdownIt
    definitions: dict[str, Any]
    as_it_was: str
    is_underlined: bool  # a heading, by a line of hyphens
    leave: Callable[[], None]  # is called if it stays as it was

    def accepted(self, translation: str) -> str:
        """Returns the translation of the block, or the block as it was if the translation has marks
        that the block has not, such as the picture `![x](y)` after a `[` that is text.

        A link whose words are its name is written as it was: `[a]`, `[a][]` or `[a][a]`.
        """
        named = NAMED.findall(self.as_it_was)
        names = {tuple(" ".join(words.split()) for words in link) for link in named}

        def shorter(link: re.Match[str]) -> str:
            words, name = (" ".join(group.split()) for group in link.groups())
            if words != name or (words, name) in names:
                return link[0]
            return f"[{link[1]}][]" if (words, "") in names else f"[{link[1]}]"

        translation = NAMED.sub(shorter, translation)
        if self.marks(translation) <= self.marks(self.as_it_was):
            return translation
        self.leave()
        return self.as_it_was

    def marks(self, raw: str) -> Counter[str]:
        """Returns how often each type of mark is in a text."""
        [inline] = self.parser.parseInline(raw, self.definitions)
        marks = Counter(mark.type for mark in inline.children or [] if mark.type not in UNMARKED)
        # A bar above a line of hyphens makes a table of a heading.
        return marks + Counter({"table": int(self.is_underlined and "|" in raw)})


def _offsets(
    content: str, in_cell: bool, lines: list[str], starts: list[int], done: int
) -> list[int] | None:
    """Returns where each character of a block's content, and its end, is in the text, after
    `done`.
    """
    offsets: list[int] = []
    for line, raw, start in zip(content.split("\n"), lines, starts, strict=False):
        written = [
            f"\\{character}" if character == "|" and in_cell else character
            for character in line.lstrip()
        ]
        whole, ended = "".join(written).rstrip(), raw.rstrip()
        if in_cell:
            column = raw.find(whole, max(done - start, 0))
        elif ended.endswith(whole):
            column = len(ended) - len(whole)
        else:  # a title in quotation marks, or before closing number signs
            column = raw.rfind(whole)
        if column < 0:
            return None
        offsets += [start + column] * (len(line) - len(line.lstrip()))
        offsets += accumulate(map(len, written), initial=start + column)
    return offsets if len(offsets) == len(content) + 1 else None


def _inline_tokens(text: str, block: Mark, offsets: list[int], leave: Leave) -> list[Token]:
    """Reads what is in a block into tokens, which together are its slice of the text."""
    tokens: list[Token] = []
    done = 0

    cuts, closings = _cuts(block.content)
    begins_line = True

    def add_text(stop: int) -> None:
        closing = next((position for position in closings if done <= position < stop), stop)
        words, rest = text[offsets[done] : offsets[closing]], text[offsets[closing] : offsets[stop]]
        is_directive = begins_line and DIRECTIVE.match(words)
        tokens.extend(_directive(words) if is_directive else _text_tokens(words))
        tokens.extend([("other", "", rest)] if rest else [])

    for mark in block.children or []:
        is_cut = mark.type == "softbreak" and mark.meta["span"][0] in cuts
        if "span" not in mark.meta or (mark.type in UNMARKED and not is_cut):
            continue
        start, stop = mark.meta["span"]
        if mark.markup in ("**", "__"):  # of which the rule notes the inner one
            start, stop = (start - 1, stop) if mark.nesting > 0 else (start, stop + 1)
        add_text(start)
        begins_line = mark.type in LINE_ENDS
        raw = text[offsets[start] : offsets[stop]]
        if mark.type == "unknown":
            leave("line", IN_DIALECT, offsets[start])
        # The words in the brackets also name the address.
        if mark.type == "link_close" and raw in ("]", "][]"):
            opened, closing = mark.meta["label"]
            raw = f"][{text[offsets[opened] : offsets[closing]]}]"
        marks = list(_marks(mark, raw))
        if mark.type == "code_inline" and tokens and (role := ROLE.search(tokens[-1][2])):
            token_type, name, words = tokens.pop()
            tokens.append((token_type, name, words[: role.start()]))
            marks[0] = ("keep", "code", role[0] + marks[0][2])
        tokens += marks
        done = stop
    add_text(len(block.content))
    return tokens


def _cuts(content: str) -> tuple[set[int], list[int]]:
    """Returns which line ends of a block stay, because a line beside them is not text, and which
    brackets end a title.
    """
    cuts: set[int] = set()
    closings: list[int] = []
    start = 0
    for line in content.split("\n"):
        words = start + len(line) - len(line.lstrip())
        if DIRECTIVE.match(line) or _unknown_line(content, start, words):
            cuts |= {start - 1, start + len(line)}
        if title := BRACKETS.match(line):
            closings.append(start + title.start(1))
        start += len(line) + 1
    return cuts, closings


def _directive(line: str) -> Iterator[Token]:
    """Cuts the line of a directive into its title and what stays."""
    titled = TITLED.fullmatch(line)
    start, title, end = titled.groups() if titled else (line, "", "")
    yield from (("other", "", start), ("text", "", title), ("other", "", end))


def _html_tokens(text: str) -> Iterator[Token]:
    """Yields the tokens of a block of HTML, in whose text links of Markdown stay as they are."""
    for token_type, name, raw in Reader(text).tokens:
        for stretch, is_link in divided(LINK, raw) if token_type == "text" else [(raw, False)]:
            yield ("kept", stretch, stretch) if is_link else (token_type, name, stretch)


def _text_tokens(text: str) -> Iterator[Token]:
    """Cuts text at what dialects write in a line."""
    done = 0
    for mark in DIALECT.finditer(text):
        if done < mark.start():
            yield "text", "", text[done : mark.start()]
        done = mark.end()
        if inside := mark["marked"] or mark["span"]:
            start = mark.start("marked" if mark["marked"] else "span")
            stop = start + len(inside)
            yield from (
                ("open", "mark", text[mark.start() : start]),
                ("text", "", inside),
                ("close", "mark", text[stop:done]),
            )
            continue
        words = mark["seen"] or (mark["page"] or "").strip("[]").rpartition("|")[2]
        yield ("kept", words, mark[0]) if words else ("alone", "", mark[0])
    if done < len(text):
        yield "text", "", text[done:]


def _marks(mark: Mark, raw: str) -> Iterator[Token]:
    """Yields the tokens of a mark, which is written as `raw`."""
    name, _, token_type = mark.type.rpartition("_")
    if name in PAIRED:
        yield token_type, name, raw
    elif mark.type in ("code_inline", "autolink"):
        width = len(mark.markup) if mark.type == "code_inline" else 1
        yield from (
            ("keep", "code", raw[:width]),
            ("text", "", raw[width:-width]),
            ("close", "code", raw[-width:]),
        )
    elif mark.type == "dialect":
        yield from [("other", "", raw)] if CONTENTS.fullmatch(raw) else _text_tokens(raw)
    elif mark.type == "html_inline":
        yield from Reader(raw).tokens
    else:
        yield "other" if mark.type in ("formula", *LINE_ENDS) else "alone", "", raw


def _read(raw: str) -> str:
    return ESCAPED.sub(r"\1", re.sub(r"[ \t]*(?:\r\n?|\n)[ \t>]*", " ", raw))


def _escape(special: set[str], tokens: list[Token]) -> Edit:
    """Returns what writes a word or a punctuation mark so that it is text; an underline within a
    word is. What stands in the tokens as text, such as in `a[0]`, may stand in the translation.
    What is always escaped in them stays so, because a dialect may need it.
    """
    raw = "\n".join(raw for token_type, _, raw in tokens if token_type == "text")
    plain, escaped = set(ESCAPED.sub("", raw)), set(ESCAPED.findall(raw))
    special = special - plain | special & escaped | escaped - plain
    patterns = [re.escape(character) for character in special - {"_"} | escaped - plain]
    if "_" in special:
        patterns += [r"(?<![^\W_])_", r"_(?![^\W_])"]
    pattern = re.compile("|".join(patterns) or "(?!)")
    return lambda text: pattern.sub(r"\\\g<0>", text)


def _finish(text: str) -> str:
    """Escapes a line that would begin as a heading, an item or a quotation does."""
    return LINE_START.sub(r"\1\\", text)


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.inline.ruler.before("link", "dialect", _dialect)
    parser.inline.ruler.before("text", "unknown", _unknown)
    add_rules(parser)
    names = parser.get_active_rules()["inline"]
    for name, rule in zip(names, parser.inline.ruler.getRules(""), strict=True):
        parser.inline.ruler.at(name, _noted(name, rule))
    return parser


def _formula(state: StateInline, silent: bool) -> bool:
    """Parses `$a_b$`, which is kept like code, and formulas in lines of their own."""
    formula = FORMULA.match(state.src, state.pos)
    if formula and not silent:
        mark = state.push("formula" if formula["display"] else "code_inline", "code", 0)
        mark.markup = f"{formula['bar']}(" if formula["bar"] else "$"
    state.pos = formula.end() if formula else state.pos
    return formula is not None


def _unknown(state: StateInline, silent: bool) -> bool:
    """Parses a line that stays whole, whatever marks are in it."""
    start = words = state.pos
    while start and state.src[start - 1] in (" ", "\t"):
        start -= 1
    if start and state.src[start - 1] != "\n":
        return False
    while state.src[words : words + 1] in (" ", "\t"):
        words += 1
    line, name = _unknown_line(state.src, start, words), "unknown"
    if not line:
        preceding = state.src[state.src.rfind("\n", 0, max(0, start - 1)) + 1 : start]
        indent = len(preceding) - len(preceding.lstrip())
        is_of_box = preceding[indent:].startswith((":::{", "///")) or OPTION.match(
            preceding, indent
        )
        line, name = OPTION.match(state.src, words) if is_of_box else None, "option"
    if not line:
        return False
    if not silent:
        state.push(name, "", 0)
    state.pos = line.end()
    return True


def _unknown_line(block: str, start: int, words: int) -> re.Match[str] | None:
    """Returns the line of a block that stays whole; None if it does not. The line starts at
    `start`, and its words do at `words`.
    """
    line = UNKNOWN.match(block, words)
    # A bar or a plus begins a line of a table or a poem only after a first one.
    is_text = line and line["later"] and not (start and block[0] in "|+")
    return None if is_text else line


def _dialect(state: StateInline, silent: bool) -> bool:
    """Parses `[^1]`, never a link even if an address defines it, `[[page]]` and `![[file]]`."""
    mark = DIALECT.match(state.src, state.pos)
    if not mark or mark.lastgroup in (None, "marked", "span") or mark[0].endswith(":"):
        return False
    if not silent:
        state.push("dialect", "", 0)
    state.pos = mark.end()
    return True


def _noted(name: str, rule: Rule) -> Rule:
    """Returns a rule that notes the span of each mark that it finds, in `meta["span"]`."""

    def run(state: StateInline, silent: bool) -> bool:
        start, known = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        if silent:
            return True
        new, end = state.tokens[known:], state.pos
        # Characters, which become marks if they are in pairs
        if name in ("emphasis", "strikethrough"):
            for token in reversed(new):
                if end > start:
                    token.meta["span"] = (end - len(token.content), end)
                    end -= len(token.content)
        elif name == "link":
            closing = state.md.helpers.parseLinkLabel(state, start, True)
            opened = next(
                token for token in new if token.type == "link_open" and "span" not in token.meta
            )
            opened.meta["span"], new[-1].meta["span"] = (start, start + 1), (closing, end)
            new[-1].meta["label"] = (start + 1, closing)
        elif new:
            new[-1].meta["span"] = (start, end)
            if name == "autolink":
                new[-1].type = name
        return True

    return run
