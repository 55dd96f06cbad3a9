"""``python -m bookbinder.publishing SITE``: finish a newly built site."""

from bookbinder.publishing.publish import main

if __name__ == "__main__":
    main()
