// What somebody has read, kept in this browser alone: ticks in the home page's list of
// chapters, and a way back to where reading stopped. Nothing here is needed to read.

{
  const plain = (path) => path.replace(/index\.html$/, "");
  const here = plain(location.pathname.slice(__md_scope.pathname.length));
  // Another tab may have written meanwhile.
  const kept = () => ({ read: [], ...__md_get("reading") });
  const keep = (change) => __md_set("reading", { ...kept(), ...change });
  const short = (title) => title.trim().split(":")[0];

  function follow(article) {
    const headings = [...article.querySelectorAll("h1, h2")];
    const next = document.querySelector(".md-footer__link--next");
    let ended = false;
    const seen = new IntersectionObserver(([end]) => {
      if (!end.isIntersecting) return;
      ended = true;
      const page = plain(next.pathname.slice(__md_scope.pathname.length));
      const title = short(next.querySelector(".md-footer__title > .md-ellipsis").textContent);
      keep({ read: [...new Set(kept().read).add(here)], at: { page, title, anchor: "" } });
    });
    seen.observe(document.querySelector(".md-footer"));
    document.addEventListener("visibilitychange", () => {
      const passed = headings.filter((heading) => heading.getBoundingClientRect().top < innerHeight / 2);
      if (document.visibilityState === "visible" || ended || passed.length < 2) return;
      keep({ at: { page: here, title: short(headings[0].firstChild.data), anchor: `#${passed.at(-1).id}` } });
    });
  }

  function offer(article) {
    const { read, at } = kept();
    for (const link of article.querySelectorAll("td > a")) {
      link.parentElement.classList.toggle("read", read.includes(plain(link.getAttribute("href"))));
    }
    article.querySelector(".continue")?.remove();
    if (!at) return;
    const line = document.createElement("p");
    line.className = "continue";
    const way = document.createElement("a");
    way.href = at.page + at.anchor;
    way.textContent = `Continue: ${at.title}`;
    const forget = document.createElement("button");
    forget.textContent = "Forget";
    forget.setAttribute("aria-label", "Forget what I have read");
    forget.addEventListener("click", () => {
      keep({ read: [], at: null });
      offer(article);
    });
    line.append(way, " ", forget);
    article.prepend(line);
  }

  const article = document.querySelector("article");
  if (here) follow(article);
  else offer(article);
}
