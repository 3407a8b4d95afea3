"""Blocks of dialects of Markdown, as rules of its parser: code of MDX, short codes of Hugo over
several lines and pictures as text, which stay unchanged; directives of MyST; footnotes,
definitions, notes and tabs, whose blocks are indented.
"""

import re
from collections import Counter

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock

# Blocks that stay unchanged: code of MDX (imports and exports, and tags of components, whose
# attributes hold code) and of templates (`{% highlight c %}`), comments and others.
BEGIN = re.compile(
    r"(?P<statement>import[ \t]+(?:type[ \t]+)?(?:[{*'\"]|\w++[ \t]*+(?:,[ \t]*+[{*]|from\b))"
    r"|export[ \t]+(?:[{*]|(?:const|let|var|async|function|class|type|interface)\b(?=[^\n]*[={(\[])"
    r"|default\b))"
    r"|(?P<component></?[A-Z][\w.]{0,60}(?=[\s{/>]))"
    r"|(?P<short_code>\{\{[<%](?![^\n]{0,1000}[%>]\}\}))"
    r"|(?P<files>--8<--[ \t]*\r?$)"
    r"|(?P<code>\{(?:\{[<%]|%-?)[ \t]*(?:highlight|comment|mermaid|katex|math)\b[^\n]*"
    r"[%>]\}{1,2}[ \t]*\r?$|\{::(?:comment|nomarkdown)\}[ \t]*\r?$)"
    r"|(?P<remark>\{/\*(?![^\n]{0,1000}\*/))"
    r"|(?P<picture>:{3,}[ \t]*(?:mermaid|plantuml)\b)",
    re.MULTILINE,
)
ENDS = {
    "short_code": re.compile(r"[%>]\}\}[ \t]*\r?$", re.MULTILINE),
    "files": re.compile(r"^[ \t]{0,99}--8<--[ \t]{0,99}\r?$", re.MULTILINE),
    "code": re.compile(r"\{(?:(?:\{[<%]|%-?)[ \t]*(?:/[ \t]*|end)[a-z]|:/)"),
    "remark": re.compile(r"\*/\}"),
    "picture": re.compile(r"^[ \t]{0,99}:{3,99}[ \t]{0,99}\r?$", re.MULTILINE),
}
# Of code: strings and comments, brackets and what ends a tag or a line
CODE = re.compile(
    r"\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|`(?:[^`\\]|\\.)*+(?:`|\\?\Z)|\\.|//[^\n]*"
    r"|/\*(?:(?!\*/).)*+|=>"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<tag><)|(?P<end>>)|(?P<line>\n[ \t\r]*\n?)",
    re.DOTALL,
)
GOES_ON = re.compile(r"[=,?:+|&.][ \t\r]*\Z")  # at the end of a line of code
MAX_CODE = 10_000  # characters of a block
MOST_UNCLOSED = 20  # blocks without an end; after those none is searched for, which takes time
# Directives of MyST that hold Markdown, and lines of their options
DIRECTIVE_FENCE = re.compile(
    r"(?P<fence>`{3,}|~{3,})[ \t]*\{(?:admonition|attention|caution|danger|error|hint|important"
    r"|note|seealso|tip|warning|card|details|dropdown|epigraph|exercise|figure|grid|grid-item"
    r"|grid-item-card|margin|quote|sidebar|solution|tab-item|tab-set|topic)\}(?P<rest>[^\n]*)"
)
DIRECTIVE_OPTION = re.compile(r"[ \t]*(?::[\w-]+:|\r?$)")
# Begins a footnote, a definition, or a note or a tab of MkDocs; the blocks that belong to it are
# indented.
INDENTED = re.compile(
    r"(?P<footnote>\[\^[^\[\]\s]{1,200}\]:[ \t]*)|(?P<definition>:[ \t]{1,3}(?=\S))"
    r'|(?:(?:!!!|\?\?\?\+?)[ \t]|={3}[+!]?[ \t]+(?="))[^"\n]*(?:"(?P<title>[^"\n]*))?[^\n]*'
)
KEPT_BLOCK = "kept_block"  # type of the tokens of blocks that stay


def add_rules(parser: MarkdownIt) -> None:
    interrupted = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("code", "indented", _indented, {"alt": interrupted})
    parser.block.ruler.before("code", KEPT_BLOCK, _kept_block)
    parser.block.ruler.before("fence", "directive_fence", _directive_fence, {"alt": interrupted})


def _kept_block(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Parses a block that stays as it is written."""
    begin = state.bMarks[first]
    block = BEGIN.match(state.src, begin + state.tShift[first])
    is_quoted = state.src[begin - 1 : begin] not in ("", "\n")
    if not block or is_quoted or state.is_code_block(first):
        return False
    block_type = str(block.lastgroup)
    unclosed = state.env.setdefault("unclosed", Counter())
    if unclosed[block_type] > MOST_UNCLOSED:
        return False
    if block_type in ENDS:
        last_line = ENDS[block_type].search(state.src, block.end())
        stop = last_line.end() if last_line else -1
    elif block_type == "component":
        stop = _end_of_tag(state.src[block.start() : block.start() + MAX_CODE], block.start())
    else:
        stop = _end_of_statement(state.src[begin : begin + MAX_CODE], begin)
    unclosed[block_type] += stop < 0
    if stop <= 0:
        return False
    last = first + 1
    while last < end and state.bMarks[last] < stop:
        last += 1
    if not silent:
        state.push(KEPT_BLOCK, "", 0).map = [first, last]
        state.line = last
    return True


def _end_of_tag(code: str, start: int) -> int:
    """Returns where a tag ends that holds code or more than a line, and is all of its last line; 0
    if it does not, -1 if it has no end.
    """
    depth = 0
    for mark in CODE.finditer(code, 1):
        depth += (mark.lastgroup == "open") - (mark.lastgroup == "close")
        if not depth and mark.lastgroup == "end":
            tag, rest = code[: mark.end()], code[mark.end() :].partition("\n")[0]
            is_kept = not rest.strip() and ("{" in tag or "\n" in tag)
            return start + mark.end() if is_kept else 0
        is_blank_line = mark.lastgroup == "line" and mark[0].count("\n") > 1
        if not depth and (mark.lastgroup == "tag" or is_blank_line):
            return 0
    return -1


def _end_of_statement(code: str, start: int) -> int:
    """Returns where the line ends with which a statement ends, all of whose brackets are closed; -1
    if it has no end.
    """
    depth = 0
    for mark in CODE.finditer(code):
        depth += (mark.lastgroup == "open") - (mark.lastgroup == "close")
        if mark.lastgroup == "line" and depth <= 0:
            line = code[max(0, mark.start() - 100) : mark.start()]
            if mark[0].count("\n") > 1 or not GOES_ON.search(line):
                return start + mark.start()
    return start + len(code) if depth <= 0 and len(code) < MAX_CODE else -1


def _directive_fence(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Parses a directive of MyST in a fence, whose text is Markdown."""
    begin = state.bMarks[first] + state.tShift[first]
    directive = DIRECTIVE_FENCE.match(state.src, begin, state.eMarks[first])
    unclosed = state.env.setdefault("unclosed", Counter())
    if not directive or state.is_code_block(first) or unclosed["fence"] > MOST_UNCLOSED:
        return False
    fence = directive["fence"]
    lines = range(first + 1, end)
    closing = next((line for line in lines if _is_closing(state, line, fence)), None)
    if closing is None:
        unclosed["fence"] += 1
        return False
    if silent:
        return True
    if "{figure}" not in directive[0]:
        _push_title(state, first, directive["rest"].strip())
    start = first + 1
    if yaml := [line for line in range(start, closing) if _is_closing(state, line, "---")][1:2]:
        start = yaml[0] + 1 if _is_closing(state, start, "---") else start
    while start < closing and DIRECTIVE_OPTION.match(
        state.src, state.bMarks[start] + state.tShift[start], state.eMarks[start]
    ):
        start += 1
    _parse_inside(state, start, closing)
    state.line = closing + 1
    return True


def _is_closing(state: StateBlock, line: int, fence: str) -> bool:
    text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].rstrip()
    return text.startswith(fence) and not text.strip(fence[0])


def _indented(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Parses a footnote, a note or a tab: the text indented below its line is not code."""
    begin = state.bMarks[first]
    note = INDENTED.match(state.src, begin + state.tShift[first], state.eMarks[first])
    begins_line = state.src[begin - 1 : begin] in ("", "\n")
    if state.is_code_block(first) or not note or (note["footnote"] and not begins_line):
        return False
    if silent:
        return True
    _push_title(state, first, note["title"])
    begins_text = bool(note["footnote"] or note["definition"])
    indent, last = state.sCount[first] + 4, end if begins_text else first + 1
    while last < end and (state.isEmpty(last) or state.sCount[last] >= indent):
        last += 1
    # What follows the mark in its line is the first text of the block.
    state.bMarks[first], state.tShift[first], state.sCount[first] = note.end(), 0, indent
    outer_indent, state.blkIndent = state.blkIndent, indent
    _parse_inside(state, first, last)
    state.blkIndent = outer_indent
    return True


def _push_title(state: StateBlock, line: int, title: str | None) -> None:
    """Adds the title of a block, which stands in its first line, as text of its own."""
    if title:
        token = state.push("inline", "", 0)
        token.content, token.map, token.children = title, [line, line + 1], []


def _parse_inside(state: StateBlock, first: int, end: int) -> None:
    """Parses these lines as blocks in the current one."""
    outer_end, state.lineMax = state.lineMax, end
    state.level += 1
    state.md.block.tokenize(state, first, end)
    state.level -= 1
    state.lineMax = outer_end
