"""Names of C and C++: which an export may give to a function, and what it makes of other texts.

The functions of a program live beside a caller's own code and the standard library. So a name may be no keyword of C or
C++, nothing that ``<stddef.h>`` and ``<stdint.h>`` declare, which the header includes, and no function of the library
that compilers know, which a program that links the object would lose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from staticgrad.errors import GraphError

_KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    alignas alignof and and_eq asm bitand bitor bool catch char8_t char16_t char32_t class co_await co_return co_yield
    compl concept const_cast consteval constexpr constinit decltype delete dynamic_cast explicit export false friend
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast
    requires static_assert static_cast template this thread_local throw true try typeid typename typeof typeof_unqual
    using virtual wchar_t xor xor_eq
"""
_REALS = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax
    fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint
    nextafter nexttoward pow remainder remquo rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc
    cabs cacos cacosh carg casin casinh catan catanh ccos ccosh cexp cimag clog conj cpow cproj creal csin csinh csqrt
    ctan ctanh
"""  # with f and l behind them, too
_LIBRARY = """
    main abort abs asctime assert atexit atof atoi atol atoll bsearch calloc clearerr clock ctime difftime div errno
    exit fclose feof ferror fflush fgetc fgetpos fgets fopen fprintf fputc fputs fread free freopen fscanf fseek fsetpos
    ftell fwrite getc getchar getenv gets gmtime imaxabs imaxdiv isalnum isalpha isblank iscntrl isdigit isgraph
    islower isprint ispunct isspace isupper iswalnum iswalpha iswblank iswcntrl iswdigit iswgraph iswlower iswprint
    iswpunct iswspace iswupper iswxdigit isxdigit labs ldiv llabs lldiv localeconv localtime longjmp malloc mblen
    memchr memcmp memcpy memmove memset mktime offsetof perror printf putc putchar puts qsort raise rand realloc remove
    rename rewind scanf setbuf setjmp setlocale setvbuf signal snprintf sprintf srand sscanf strcat strchr strcmp
    strcoll strcpy strcspn strerror strftime strlen strncat strncmp strncpy strpbrk strrchr strspn strstr strtod
    strtof strtoimax strtok strtol strtold strtoll strtoul strtoull strtoumax strxfrm system time tmpfile tmpnam
    tolower toupper towlower towupper ungetc vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf
    NULL size_t ptrdiff_t max_align_t nullptr_t unreachable linux unix
    alloca bcmp bcopy bzero drem exp10 ffs finite fork gamma index isascii j0 j1 jn pow10 rindex scalb
    significand sincos stpcpy strdup toascii y0 y1 yn
"""
KEYWORDS = frozenset(_KEYWORDS.split())
LIBRARY = frozenset((*_LIBRARY.split(), *(f"{name}{kind}" for name in _REALS.split() for kind in ("", "f", "l"))))
INCLUDED = re.compile(  # by the header, from <stdint.h>
    r"u?int(8|16|32|64|ptr|max|_least(8|16|32|64)|_fast(8|16|32|64))_t"
    r"|U?INT(PTR|MAX|_LEAST\d+|_FAST\d+|\d+)_(MIN|MAX|C|WIDTH)|(PTRDIFF|SIZE|SIG_ATOMIC|WCHAR|WINT)_(MIN|MAX|WIDTH)"
)
MODEL_CONSTANTS = ("H", "ALIGNMENT", "STATE_BYTES", "STATE_SEED", "STATE_RUN")  # behind the name of a model
ENTRY_CONSTANTS = ("WORKSPACE_BYTES", "STACK_BYTES", "INS", "OUTS")  # behind that of an entry
ON_THREADS = "_on_threads"  # behind the name of a function that is given threads
IDENTIFIER = re.compile(r"[A-Za-z]\w*", re.ASCII)


def is_taken(name: str) -> bool:
    """True for a name that C or C++ have given away."""
    return name in KEYWORDS or name in LIBRARY or INCLUDED.fullmatch(name) is not None


def check_identifier(name: str) -> str:
    """A name that C and C++ allow for a function of its own.

    Raises:
        GraphError: it is none.
    """
    if not isinstance(name, str) or not IDENTIFIER.fullmatch(name):
        raise GraphError(f"export: expected a name that C allows (letters, digits, _), actual {name!r}")
    if is_taken(name):
        raise GraphError(f"export: expected a name that C allows, actual {name!r}, which C or C++ have given away")
    return name


def identifier(text: str) -> str:
    """A name for a function of C that resembles a text."""
    name = word(text)
    return f"{name}_" if is_taken(name) else name


def word(text: str) -> str:
    """A text as part of a name."""
    plain = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return plain if plain[:1].isalpha() else f"n{plain}"


def initial_name(model: str) -> str:
    """The name of the constant with the state as it begins."""
    return f"{model}_initial_state"


def fixed_names(model: str, entries: Iterable[str]) -> dict[str, str]:
    """The names in an object and its header that are made of the names of the model and of its entries alone, and which
    of them they are of.

    Raises:
        GraphError: two of them are the same.
    """
    found: dict[str, str] = {}

    def add(owner: str, *names: str) -> None:
        for name in names:
            if name in found:
                both = " and ".join(dict.fromkeys((repr(found[name]), repr(owner))))
                raise GraphError(f"export: expected other names than {both}: in C both would have {name!r}")
            found[name] = owner

    add(model, initial_name(model), *(f"{model.upper()}_{what}" for what in MODEL_CONSTANTS))
    for entry in entries:
        add(entry, entry, f"{entry}{ON_THREADS}", *(f"{entry.upper()}_{what}" for what in ENTRY_CONSTANTS))
    return found
