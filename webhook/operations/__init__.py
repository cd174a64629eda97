"""Operations of commands on a cluster: install and remove Podgate, check it, explain a Pod, find its servers."""
