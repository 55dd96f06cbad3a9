// Starts what is live on a page when it comes near: its script, and all that this asks for.

const near = new IntersectionObserver((places) => {
  for (const { isIntersecting, target } of places) {
    if (isIntersecting) import(new URL(target.dataset.script, document.baseURI));
  }
}, { rootMargin: "50%" });

for (const place of document.querySelectorAll("[data-script]")) near.observe(place);
