"""What a contributor calls: begin a chapter, check one page, check it on each save."""
